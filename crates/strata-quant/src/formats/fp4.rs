//! MXFP4 and NVFP4: 4-bit floats (E2M1) with a scale of 8 bits for every 32 or 16.

use super::nibbles32;
use crate::block::{BlockFormat, Integers, Scales};

/// Twice the values of E2M1 codes: sign, two exponent bits, one mantissa bit.
pub const FP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Block: exponent e, 16 bytes of codes as in Q4_0. value = 2^(e - 128) * [`FP4_VALUES`]\[code\]; e = 255 is not a number.
pub struct MXFP4;
/// Block: four scales (UE4M3), then for each of the four sub-blocks of 16 values 8 bytes of codes: low nibbles are values 0..8,
/// high nibbles 8..16. value = scale / 2 * [`FP4_VALUES`]\[code\].
///
/// Four terms, one for each scale.
pub struct NVFP4;

impl BlockFormat for MXFP4 {
    type Bytes = [u8; 17];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 12;
    const SCALES: Scales = Scales::Exponent(0);

    #[inline(always)]
    fn integers(b: &[u8; 17]) -> Self::Integers {
        // the two smallest are subnormal
        let bits = if b[0] < 2 { 0x0020_0000 << b[0] } else { u32::from(b[0] - 1) << 23 };
        Integers::plain(f32::from_bits(bits), nibbles32(&b[1..], |q| FP4_VALUES[usize::from(q)]))
    }
}

impl BlockFormat for NVFP4 {
    type Bytes = [u8; 36];
    type Integers = Integers<64, 4, 4>;
    const MAX_CODE: i32 = 12;
    const SCALES: Scales = Scales::Finite;

    #[inline(always)]
    fn integers(b: &[u8; 36]) -> Self::Integers {
        let codes = std::array::from_fn(|i| FP4_VALUES[usize::from(b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15)]);
        Integers { d: std::array::from_fn(|j| half_ue4m3(b[j])), dmin: 0.0, codes, subs: [1; 4], mins: [0; 4] }
    }
}

/// Half the number that a UE4M3 byte stands for: 4 exponent bits (bias 7), 3 mantissa bits; bit 7 does not count. 0x7f, which
/// the encoding has for "not a number", is 0.
#[inline(always)]
fn half_ue4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(byte >> 3 & 15), u32::from(byte & 7));
    let d = if exponent == 0 {
        mantissa as f32 * f32::from_bits((127 - 10) << 23)
    } else {
        f32::from_bits((exponent + 127 - 8) << 23 | mantissa << 20)
    };
    if byte == 0x7f { 0.0 } else { d }
}
