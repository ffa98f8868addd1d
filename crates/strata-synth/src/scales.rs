//! Where a format keeps its scales, as the format itself says, and how a number is written there.

use half::f16;
use strata_quant::{BlockFormat, DType, FloatFormat, Scales, Visitor};

/// A scale of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// A half at this byte.
    Half(usize),
    /// The upper four bits of four 16-bit words from this byte on are a half's.
    Spread(usize),
    /// A power of two at this byte.
    Power(usize),
    /// An unsigned 8-bit float (4 bits of exponent, 3 of mantissa) at this byte.
    Small(usize),
}

/// The scales of a block of `dtype`: its main one, or as many alike, and for a format with minima theirs second. Float types
/// have none.
pub(crate) fn of(dtype: DType) -> Vec<Scale> {
    struct Places;
    impl Visitor for Places {
        type Out = Vec<Scale>;

        fn float<F: FloatFormat>(self) -> Vec<Scale> {
            Vec::new()
        }

        fn block<F: BlockFormat>(self) -> Vec<Scale> {
            match F::SCALES {
                Scales::Half(at) => at.iter().map(|at| Scale::Half(*at)).collect(),
                Scales::Quarters(at) => vec![Scale::Spread(at)],
                Scales::Exponent(at) => vec![Scale::Power(at)],
                // one for 16 values, before the codes
                Scales::Finite => (0..F::LEN / 16).map(Scale::Small).collect(),
            }
        }
    }
    dtype.visit(Places)
}

/// True if the second scale of a block of `dtype` is that of its minima.
pub(crate) fn has_minima(dtype: DType) -> bool {
    matches!(of(dtype)[..], [Scale::Half(_), Scale::Half(_)])
}

impl Scale {
    /// The bits of a scale of `d` in this place.
    pub fn encode(self, d: f32) -> u16 {
        match self {
            Scale::Half(_) | Scale::Spread(_) => f16::from_f32(d).to_bits(),
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
            Scale::Half(at) => block[at..at + 2].copy_from_slice(&bits.to_le_bytes()),
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
