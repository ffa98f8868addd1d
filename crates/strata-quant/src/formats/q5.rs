//! Q5_0 and Q5_1: 32 codes of 5 bits with a scale, and for Q5_1 an offset.

use super::u32_at;
use crate::block::{BlockFormat, Integers, Scales, half_at};

/// Block: d (half), the fifth bits (bit i for value i), 16 bytes of low nibbles as in Q4_0. value = d * (code - 16).
pub struct Q5_0;
/// Block: d, m (halfs), then as Q5_0. value = d * code + m.
pub struct Q5_1;

/// Codes in 0..32 from the fifth bits and the low nibbles.
#[inline(always)]
fn codes(high: u32, low: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| (if i < 16 { low[i] & 15 } else { low[i - 16] >> 4 }) | ((high >> i & 1) as u8) << 4)
}

impl BlockFormat for Q5_0 {
    type Bytes = [u8; 22];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 16;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 22]) -> Self::Integers {
        Integers::plain(half_at(b, 0), codes(u32_at(b, 2), &b[6..]).map(|q| q as i8 - 16))
    }
}

impl BlockFormat for Q5_1 {
    type Bytes = [u8; 24];
    type Integers = Integers<32, 1, 1>;
    const MAX_CODE: i32 = 31;
    const MAX_MIN: i32 = 1;
    const SCALES: Scales = Scales::Half(&[0, 2]);

    #[inline(always)]
    fn integers(b: &[u8; 24]) -> Self::Integers {
        Integers::offset(half_at(b, 0), half_at(b, 2), codes(u32_at(b, 4), &b[8..]).map(|q| q as i8))
    }
}
