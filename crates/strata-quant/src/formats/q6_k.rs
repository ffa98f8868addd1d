//! Q6_K: super-blocks of 256 values of 6 bits with signed sub-scales.

use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Linear, SubScales, Values, blocks, half_of, super_block};

/// Block: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed sub-scales of 16 values each, d (half).
/// Each half of the block has four runs of 32 values: nibbles low, low, high, high of 64 bytes, bit pair = the run's
/// number. value = d * scale * (code - 32).
pub struct Q6_K;

impl BlockFormat for Q6_K {
    type Bytes = [u8; 210];
    type Integers = Integers<256, 16, 1>;
    const MAX_CODE: i32 = 32;
    const MAX_SUB: i32 = 128;
    const SCALES: Scales = Scales::Half(&[208]);
    const ENCODE: Option<Encode> = Some(encode);

    #[inline(always)]
    fn integers(b: &[u8; 210]) -> Self::Integers {
        let codes = std::array::from_fn(|i| {
            let (half, run, l) = (i / 128, i % 128 / 32, i % 32);
            let low = b[half * 64 + run % 2 * 32 + l] >> (run / 2 * 4) & 15;
            let high = b[128 + half * 32 + l] >> (run * 2) & 3;
            (low | high << 4) as i8 - 32
        });
        Integers::scaled(half_at(b, 208), std::array::from_fn(|j| b[192 + j] as i8), codes)
    }
}

fn encode(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let codec = Linear::new(-32, 31);
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 16>(&codec, v, SubScales { first: -128, last: 127, step: 1 }, 1.0)?;
        let mut b = [0; 210];
        for (i, code) in w.codes.iter().map(|c| (c + 32) as u8).enumerate() {
            let (half, run, l) = (i / 128, i % 128 / 32, i % 32);
            b[half * 64 + run % 2 * 32 + l] |= (code & 15) << (run / 2 * 4);
            b[128 + half * 32 + l] |= (code >> 4) << (run * 2);
        }
        (0..16).for_each(|j| b[192 + j] = w.subs[j] as u8);
        b[208..].copy_from_slice(&half_of(w.d[0]).to_le_bytes());
        Some(b)
    });
}
