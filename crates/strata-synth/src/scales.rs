//! Where a format keeps its scales, and how a number is written there.

use half::f16;
use strata_quant::DType;

/// A scale of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// A half at this offset, the given share of the block's scale. Minima have the share that makes values average to zero.
    Half(usize, f32),
    /// The upper four bits of four 16-bit words from this offset on are a half's.
    Spread(usize),
    /// A power of two, one byte.
    Power(usize),
    /// An unsigned 8-bit float (4 bits of exponent, 3 of mantissa).
    Small(usize),
}

/// The scales of a block of `dtype`; `None` for a format that this table does not know. Float types have none.
pub(crate) fn of(dtype: DType) -> Option<&'static [Scale]> {
    use Scale::*;
    // by name, so that formats may come and go in the table of formats
    Some(match dtype.name() {
        "F32" | "F16" | "BF16" => &[],
        "Q8_0" | "Q4_0" | "Q5_0" | "Q2_0" | "IQ4_NL" | "IQ4_XS" | "IQ3_S" | "IQ3_XXS" | "IQ2_S" | "IQ2_XS" | "IQ2_XXS" | "IQ1_S" => {
            &[Half(0, 1.0)]
        }
        "Q4_1" => &[Half(0, 1.0), Half(2, -7.5)],
        "Q5_1" => &[Half(0, 1.0), Half(2, -15.5)],
        "Q2_K" => &[Half(80, 1.0), Half(82, 1.5)],
        "Q3_K" => &[Half(108, 1.0)],
        "Q4_K" => &[Half(0, 1.0), Half(2, 7.5)],
        "Q5_K" => &[Half(0, 1.0), Half(2, 15.5)],
        "Q6_K" => &[Half(208, 1.0)],
        "IQ1_M" => &[Spread(48)],
        "MXFP4" => &[Power(0)],
        "NVFP4" => &[Small(0), Small(1), Small(2), Small(3)],
        _ => return None,
    })
}

impl Scale {
    /// The bits of the block's scale `d` in this place.
    pub fn encode(self, d: f32) -> u16 {
        match self {
            Scale::Half(_, share) => f16::from_f32(share * d).to_bits(),
            Scale::Spread(_) => f16::from_f32(d).to_bits(),
            Scale::Power(_) => (d.abs().log2().round() + 127.0).clamp(1.0, 254.0) as u16,
            Scale::Small(_) => {
                let value = |code: u16| match code >> 3 {
                    0 => f32::from(code & 7) / 512.0,
                    e => (1.0 + f32::from(code & 7) / 8.0) * f32::from(e).exp2() / 128.0,
                };
                let distance = |code: &u16| (value(*code) - d.abs()).abs();
                (1..0x7f).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(1)
            }
        }
    }

    /// Writes encoded bits.
    #[inline(always)]
    pub fn put(self, block: &mut [u8], bits: u16) {
        match self {
            Scale::Half(at, _) => block[at..at + 2].copy_from_slice(&bits.to_le_bytes()),
            Scale::Spread(at) => {
                for i in 0..4 {
                    let high = &mut block[at + 2 * i + 1];
                    *high = *high & 15 | ((bits >> (4 * i)) as u8 & 15) << 4;
                }
            }
            Scale::Power(at) | Scale::Small(at) => block[at] = bits as u8,
        }
    }
}
