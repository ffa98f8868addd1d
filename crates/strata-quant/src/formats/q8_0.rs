//! Q8_0: 32 signed bytes and their scale.

use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::half_of;
use crate::format::encode_blocks;

/// Block: d (half), 32 signed codes. value = d * code.
pub struct Q8_0;

impl BlockFormat for Q8_0 {
    type Bytes = [u8; 34];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 128;
    const SCALES: Scales = Scales::Half(&[0]);
    const ENCODE: Option<Encode> = Some(encode);

    #[inline(always)]
    fn integers(b: &[u8; 34]) -> Self::Integers {
        Integers::plain(half_at(b, 0), std::array::from_fn(|i| b[2 + i] as i8))
    }
}

/// d = max |x| / 127; codes by the unrounded d, half away from zero.
fn encode(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 32], b: &mut [u8; 34]| {
        let amax = v.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let d = (amax / 127.0).min(65504.0);
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        b[..2].copy_from_slice(&half_of(d).to_le_bytes());
        for (q, x) in b[2..].iter_mut().zip(v) {
            *q = (x * inverse).round() as i8 as u8;
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::testing::round_trip;

    #[test]
    fn values_on_the_grid_are_kept_and_ties_go_away_from_zero() {
        let mut v: [f32; 32] = std::array::from_fn(|i| i as f32 - 16.0);
        v[31] = 127.0;
        assert_eq!(round_trip(DType::Q8_0, &v), v);
        v[0] = 2.5;
        v[1] = -2.5;
        let out = round_trip(DType::Q8_0, &v);
        assert_eq!((out[0], out[1]), (3.0, -3.0));
        assert_eq!(round_trip(DType::Q8_0, &[0.0; 32]), [0.0; 32]);
    }
}
