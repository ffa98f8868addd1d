//! Q4_0 and Q4_1: 32 codes of 4 bits with a scale, and for Q4_1 an offset.

use super::nibbles32;
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Codec, Linear, Values, blocks, codes, fit, fit_offset, half_of};
use crate::format::encode_blocks;

/// Block: d (half), 16 bytes of codes: low nibbles are values 0..16, high nibbles 16..32. value = d * (code - 8).
pub struct Q4_0;
/// Block: d, m (halfs), 16 bytes of codes as in Q4_0. value = d * code + m.
pub struct Q4_1;

impl BlockFormat for Q4_0 {
    type Bytes = [u8; 18];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 8;
    const SCALES: Scales = Scales::Half(&[0]);
    const ENCODE: Option<Encode> = Some(encode_q4_0);

    #[inline(always)]
    fn integers(b: &[u8; 18]) -> Self::Integers {
        Integers::plain(half_at(b, 0), nibbles32(&b[2..], |q| q as i8 - 8))
    }
}

impl BlockFormat for Q4_1 {
    type Bytes = [u8; 20];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 15;
    const MAX_MIN: i32 = 1;
    const SCALES: Scales = Scales::Half(&[0, 2]);
    const ENCODE: Option<Encode> = Some(encode_q4_1);

    #[inline(always)]
    fn integers(b: &[u8; 20]) -> Self::Integers {
        Integers::offset(half_at(b, 0), half_at(b, 2), nibbles32(&b[4..], |q| q as i8))
    }
}

/// The inverse of [`nibbles32`].
pub(super) fn put_nibbles32(codes: &[u8; 32], to: &mut [u8]) {
    for (i, q) in to.iter_mut().enumerate() {
        *q = codes[i] & 15 | (codes[i + 16] & 15) << 4;
    }
}

/// A scale for codes -n..n of the reference: x / -n of the (first) value x of largest magnitude, so that it gets the lowest; the
/// others round half up.
pub(super) fn reference_codes(v: &[f32; 32], n: f32) -> (f32, [u8; 32]) {
    let extreme = v.iter().fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
    let d = extreme / -n;
    // a scale that no half holds
    let d = d.clamp(-65504.0, 65504.0);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, v.map(|x| ((x * inverse + n + 0.5) as u8).min(2 * n as u8 - 1)))
}

/// Scale, offset and codes 0..=top of the reference: the range of the values in equal steps.
pub(super) fn reference_offset(v: &[f32; 32], top: f32) -> (f32, f32, [u8; 32]) {
    let max = v.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
    let min = v.iter().fold(f32::INFINITY, |m, &x| m.min(x));
    // what no half holds
    let min = min.clamp(-65504.0, 65504.0);
    let d = ((max - min) / top).min(65504.0);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    (d, min, v.map(|x| (((x - min) * inverse + 0.5) as u8).min(top as u8)))
}

/// Scale and codes of least weighted error; codes are `low` above their integers.
pub(super) fn searched(v: &Values<32>, codec: &Linear, low: i8) -> Option<(f32, [u8; 32])> {
    let mut codes = [0; 32];
    let d = v.half(fit(codec, &v.x, &v.w, &mut codes), 1.0);
    codec.codes(&v.x, &v.w, d.d, &mut codes);
    (d.scale != 0.0).then(|| (d.scale, codes.map(|c| (c + low) as u8)))
}

/// Scale, offset and codes of least weighted error.
pub(super) fn searched_offset(v: &Values<32>, top: f32) -> Option<(f32, f32, [u8; 32])> {
    let (s, m) = fit_offset(&v.x, &v.w, top, true);
    let offset = v.half(-m, 1.0);
    // an offset that no half holds leaves less room for the scale
    let room = (v.x.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x)) - offset.d).max(0.0) / top;
    let d = v.half(s.min(1.25 * room), 1.0);
    let mut q = [0; 32];
    codes(&v.x, d.d, -offset.d, top, &mut q);
    Some((d.scale, offset.scale, q.map(|c| c as u8)))
}

fn encode_q4_0(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let pack = |(d, codes): (f32, [u8; 32])| {
        let mut b = [0; 18];
        b[..2].copy_from_slice(&half_of(d).to_le_bytes());
        put_nibbles32(&codes, &mut b[2..]);
        b
    };
    match importance {
        None => encode_blocks(values, out, |v: &[f32; 32], b| *b = pack(reference_codes(v, 8.0))),
        Some(_) => {
            let codec = Linear::new(-8, 7);
            blocks(values, importance, out, |v| searched(v, &codec, 8).map(pack));
        }
    }
}

fn encode_q4_1(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let pack = |(d, m, codes): (f32, f32, [u8; 32])| {
        let mut b = [0; 20];
        b[..2].copy_from_slice(&half_of(d).to_le_bytes());
        b[2..4].copy_from_slice(&half_of(m).to_le_bytes());
        put_nibbles32(&codes, &mut b[4..]);
        b
    };
    match importance {
        None => encode_blocks(values, out, |v: &[f32; 32], b| *b = pack(reference_offset(v, 15.0))),
        Some(_) => blocks(values, importance, out, |v| searched_offset(v, 15.0).map(pack)),
    }
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::testing::round_trip;

    #[test]
    fn values_on_the_grid_are_kept() {
        assert_eq!(round_trip(DType::Q4_0, &[0.0; 32]), [0.0; 32]);
        let mut v: [f32; 32] = std::array::from_fn(|i| (i % 16) as f32 - 8.0);
        assert_eq!(round_trip(DType::Q4_0, &v), v);
        // the positive side has one code less than the negative
        v[15] = 7.9;
        assert_eq!(round_trip(DType::Q4_0, &v)[15], 7.0);
    }
}
