//! Q2_K: super-blocks of 256 values of 2 bits with integer sub-scales and minima.

use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::{Values, blocks, half_of, super_block_with_minima};

/// Block: 16 bytes with a sub-scale (low nibble) and a minimum (high nibble) for every 16 values, 64 bytes of codes, d, dmin
/// (halfs). 32 bytes of codes hold 128 values, run r of 32 of them at bits 2r. value = d * scale * code - dmin * min.
pub struct Q2_K;

impl BlockFormat for Q2_K {
    type Bytes = [u8; 84];
    type Integers = Integers<256, 16, 1>;
    const MAX_CODE: i32 = 3;
    const MAX_SUB: i32 = 15;
    const MAX_MIN: i32 = 15;
    const SCALES: Scales = Scales::Half(&[80, 82]);
    const ENCODE: Option<Encode> = Some(encode);

    #[inline(always)]
    fn integers(b: &[u8; 84]) -> Self::Integers {
        Integers {
            d: [half_at(b, 80)],
            dmin: half_at(b, 82),
            codes: pairs(&b[16..80]).map(|q| q as i8),
            subs: std::array::from_fn(|j| (b[j] & 15) as i8),
            mins: std::array::from_fn(|j| b[j] >> 4),
        }
    }
}

/// 256 pairs of bits in the order of Q2_K and Q3_K.
#[inline(always)]
pub(super) fn pairs(bytes: &[u8]) -> [u8; 256] {
    std::array::from_fn(|i| bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3)
}

/// The inverse of [`pairs`].
pub(super) fn put_pairs(codes: impl Fn(usize) -> u8, to: &mut [u8]) {
    (0..256).for_each(|i| to[i / 128 * 32 + i % 32] |= (codes(i) & 3) << (i % 128 / 32 * 2));
}

fn encode(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block_with_minima::<16>(v, 3.0, 15)?;
        let mut b = [0; 84];
        (0..16).for_each(|j| b[j] = w.subs[j] as u8 | w.mins[j] << 4);
        put_pairs(|i| w.codes[i] as u8, &mut b[16..80]);
        b[80..82].copy_from_slice(&half_of(w.d[0]).to_le_bytes());
        b[82..].copy_from_slice(&half_of(w.dmin).to_le_bytes());
        Some(b)
    });
}
