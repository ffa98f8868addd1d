//! Q4_K and Q5_K: super-blocks of 256 values with integer sub-scales and minima.

use crate::block::{BlockFormat, Integers, Scales, half_at};

/// Block: d, dmin (halfs), 12 bytes of sub-scales, 128 bytes of codes: 32 bytes hold two sub-blocks, low nibbles
/// first. value = d * scale * code - dmin * min.
pub struct Q4_K;
/// As Q4_K, with 32 bytes before the codes that hold the fifth bits: bit `i` of byte `l` is for value `l` of
/// sub-block `i`.
pub struct Q5_K;

/// Sub-block scales and minima, 6 bits each, from their 12 bytes. Sub-blocks 0..4 have the low 6 bits of bytes `i` and `i + 4`;
/// the others have the nibbles of byte `i + 4` and, as bits 4 and 5, the top bits of those bytes.
#[inline(always)]
pub(crate) fn k_scales(packed: &[u8]) -> ([i8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = (packed[j] & 63) as i8;
        mins[j] = packed[j + 4] & 63;
        scales[j + 4] = (packed[j + 8] & 15 | packed[j] >> 6 << 4) as i8;
        mins[j + 4] = packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

impl BlockFormat for Q4_K {
    type Bytes = [u8; 144];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 15;
    const MAX_SUB: i32 = 63;
    const MAX_MIN: i32 = 63;
    const SCALES: Scales = Scales::Half(&[0, 2]);

    #[inline(always)]
    fn integers(b: &[u8; 144]) -> Self::Integers {
        let (subs, mins) = k_scales(&b[4..16]);
        let codes = std::array::from_fn(|i| {
            let byte = b[16 + i / 64 * 32 + i % 32];
            (byte >> (i % 64 / 32 * 4) & 15) as i8
        });
        Integers { d: [half_at(b, 0)], dmin: half_at(b, 2), codes, subs, mins }
    }
}

impl BlockFormat for Q5_K {
    type Bytes = [u8; 176];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 31;
    const MAX_SUB: i32 = 63;
    const MAX_MIN: i32 = 63;
    const SCALES: Scales = Scales::Half(&[0, 2]);

    #[inline(always)]
    fn integers(b: &[u8; 176]) -> Self::Integers {
        let (subs, mins) = k_scales(&b[4..16]);
        let codes = std::array::from_fn(|i| {
            let low = b[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
            let high = b[16 + i % 32] >> (i / 32) & 1;
            (low | high << 4) as i8
        });
        Integers { d: [half_at(b, 0)], dmin: half_at(b, 2), codes, subs, mins }
    }
}
