//! MXFP4 and NVFP4: 4-bit floats (E2M1) with a scale of 8 bits for every 32 or 16.

use super::nibbles32;
use super::q4::put_nibbles32;
use crate::block::{BlockFormat, Encode, Integers, Scales};
use crate::encode::table::Table;
use crate::encode::{Codec, Values, blocks, error, fit};

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
    const ENCODE: Option<Encode> = Some(encode_mxfp4);

    #[inline(always)]
    fn integers(b: &[u8; 17]) -> Self::Integers {
        Integers::plain(half_power(b[0]), nibbles32(&b[1..], |q| FP4_VALUES[usize::from(q)]))
    }
}

impl BlockFormat for NVFP4 {
    type Bytes = [u8; 36];
    type Integers = Integers<64, 4, 4>;
    const MAX_CODE: i32 = 12;
    const SCALES: Scales = Scales::Finite;
    const ENCODE: Option<Encode> = Some(encode_nvfp4);

    #[inline(always)]
    fn integers(b: &[u8; 36]) -> Self::Integers {
        let codes = std::array::from_fn(|i| FP4_VALUES[usize::from(b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15)]);
        Integers { d: std::array::from_fn(|j| half_ue4m3(b[j])), dmin: 0.0, codes, subs: [1; 4], mins: [0; 4] }
    }
}

/// 2^(e - 128).
#[inline(always)]
fn half_power(e: u8) -> f32 {
    // the two smallest are subnormal
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
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

/// [`FP4_VALUES`] in ascending order.
const ASCENDING: [i8; 15] = [-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12];

/// The 4-bit code of a value.
fn fp4_code(value: i8) -> u8 {
    FP4_VALUES.iter().position(|v| *v == value).unwrap_or(0) as u8
}

fn encode_mxfp4(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let table = Table::new(&ASCENDING);
    blocks(values, importance, out, |v: &Values<32>| {
        // the largest value is 6 times 2^(e - 127): its own exponent less two, or near that; above 252 values could be infinite
        let exponent = (v.amax.to_bits() >> 23) as i32 - 2;
        let mut best = (f32::INFINITY, [0; 17]);
        for e in [exponent - 1, exponent, exponent + 1] {
            let e = e.clamp(0, 252) as u8;
            let (s, mut codes) = (half_power(e) / v.amax, [0; 32]);
            table.codes(&v.x, &v.w, s, &mut codes);
            let error = error(&v.x, &v.w, s, &codes);
            if error < best.0 {
                best = (error, [e; 17]);
                put_nibbles32(&codes.map(fp4_code), &mut best.1[1..]);
            }
        }
        Some(best.1)
    });
}

fn encode_nvfp4(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let table = Table::new(&ASCENDING);
    blocks(values, importance, out, |v: &Values<64>| {
        let mut b = [0; 36];
        for j in 0..4 {
            let (x, w) = (&v.x[j * 16..][..16], &v.w[j * 16..][..16]);
            let mut codes = [0; 16];
            let wanted = fit(&table, x, w, &mut codes).abs() * v.amax;
            // scales rise with their bytes
            let at = (0..=0x7eu8).filter(|byte| half_ue4m3(*byte) < wanted).count();
            let mut least = f32::INFINITY;
            for byte in at.saturating_sub(2)..=(at + 2).min(0x7e) {
                let (s, mut codes) = (half_ue4m3(byte as u8) / v.amax, [0; 16]);
                table.codes(x, w, s, &mut codes);
                let error = error(x, w, s, &codes);
                if error < least {
                    least = error;
                    b[j] = byte as u8;
                    let codes = codes.map(fp4_code);
                    (0..8).for_each(|i| b[4 + j * 8 + i] = codes[i] | codes[i + 8] << 4);
                }
            }
        }
        Some(b)
    });
}
