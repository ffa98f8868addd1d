//! Q2_K: super-blocks of 256 values of 2 bits with integer sub-scales and minima.

use crate::block::{BlockFormat, Integers, Scales, half_at};

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
