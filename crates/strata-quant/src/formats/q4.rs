//! Q4_0 and Q4_1: 32 codes of 4 bits with a scale, and for Q4_1 an offset.

use half::f16;

use super::nibbles32;
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
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

    #[inline(always)]
    fn integers(b: &[u8; 20]) -> Self::Integers {
        Integers::offset(half_at(b, 0), half_at(b, 2), nibbles32(&b[4..], |q| q as i8))
    }
}

/// d = x / -8 of the (first) value x of largest magnitude, so that it gets code 0; the others round half up.
fn encode_q4_0(values: &[f32], out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 32], b: &mut [u8; 18]| {
        let extreme = v.iter().fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
        let d = extreme / -8.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        b[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        let code = |x: f32| ((x * inverse + 8.5) as u8).min(15);
        for (i, q) in b[2..].iter_mut().enumerate() {
            *q = code(v[i]) | code(v[i + 16]) << 4;
        }
    });
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
