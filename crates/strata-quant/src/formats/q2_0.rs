//! Q2_0: 64 codes of 2 bits and a scale.

use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Codec, Linear, Values, blocks, fit, half_of};

/// Block: d (half), 16 bytes with four codes each, lowest bits first. value = d * (code - 1).
///
/// Two terms, since activations have a scale for every 32 values.
pub struct Q2_0;

impl BlockFormat for Q2_0 {
    type Bytes = [u8; 18];
    type Integers = Integers<64, 2, 2>;
    const MAX_CODE: i32 = 2;
    const SCALES: Scales = Scales::Half(&[0]);
    const ENCODE: Option<Encode> = Some(encode);

    #[inline(always)]
    fn integers(b: &[u8; 18]) -> Self::Integers {
        let codes = std::array::from_fn(|i| (b[2 + i / 4] >> (i % 4 * 2) & 3) as i8 - 1);
        Integers { d: [half_at(b, 0); 2], dmin: 0.0, codes, subs: [1; 2], mins: [0; 2] }
    }
}

fn encode(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let codec = Linear::new(-1, 2);
    blocks(values, importance, out, |v: &Values<64>| {
        let mut codes = [0; 64];
        let d = v.half(fit(&codec, &v.x, &v.w, &mut codes), 1.0);
        codec.codes(&v.x, &v.w, d.d, &mut codes);
        let mut b = [0; 18];
        b[..2].copy_from_slice(&half_of(d.scale).to_le_bytes());
        codes.iter().enumerate().for_each(|(i, c)| b[2 + i / 4] |= ((c + 1) as u8) << (i % 4 * 2));
        (d.scale != 0.0).then_some(b)
    });
}
