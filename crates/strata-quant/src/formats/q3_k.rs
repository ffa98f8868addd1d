//! Q3_K: super-blocks of 256 values of 3 bits with signed sub-scales.

use super::q2_k::{pairs, put_pairs};
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Linear, SubScales, Values, blocks, half_of, super_block};

/// Block: 32 bytes of third bits (bit r of byte l for value l of run r of 32 values; clear means 4 less), 64 bytes of low bit
/// pairs as in Q2_K, 12 bytes of sub-scales for 16 values each, d (half). Low nibbles of the sub-scales: bytes 0..8, low halves
/// for 0..8, high halves for 8..16; the upper pairs: bytes 8..12, pair k of byte l for sub-scale 4k + l.
/// value = d * (scale - 32) * code.
pub struct Q3_K;

impl BlockFormat for Q3_K {
    type Bytes = [u8; 110];
    type Integers = Integers<256, 16, 1>;
    const MAX_CODE: i32 = 4;
    const MAX_SUB: i32 = 32;
    const SCALES: Scales = Scales::Half(&[108]);
    const ENCODE: Option<Encode> = Some(encode);

    #[inline(always)]
    fn integers(b: &[u8; 110]) -> Self::Integers {
        let low = pairs(&b[32..96]);
        let codes = std::array::from_fn(|i| low[i] as i8 - if b[i % 32] >> (i / 32) & 1 == 1 { 0 } else { 4 });
        let subs = std::array::from_fn(|j| {
            let low = b[96 + j % 8] >> (j / 8 * 4) & 15;
            let high = b[104 + j % 4] >> (j / 4 * 2) & 3;
            (low | high << 4) as i8 - 32
        });
        Integers::scaled(half_at(b, 108), subs, codes)
    }
}

fn encode(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let codec = Linear::new(-4, 3);
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 16>(&codec, v, SubScales { first: -32, last: 31, step: 1 }, 1.0)?;
        let mut b = [0; 110];
        // codes from 0 to 7
        let code = |i: usize| (w.codes[i] + 4) as u8;
        (0..256).for_each(|i| b[i % 32] |= (code(i) >> 2) << (i / 32));
        put_pairs(code, &mut b[32..96]);
        for (j, sub) in w.subs.iter().map(|s| (s + 32) as u8).enumerate() {
            b[96 + j % 8] |= (sub & 15) << (j / 8 * 4);
            b[104 + j % 4] |= (sub >> 4) << (j / 4 * 2);
        }
        b[108..].copy_from_slice(&half_of(w.d[0]).to_le_bytes());
        Some(b)
    });
}
