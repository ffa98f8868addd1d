//! IQ1_S and IQ1_M: groups of eight values -1, 0, 1 from a codebook, all moved up or down by an eighth.
//!
//! The integers are eight times that, 8 g + 1 or 8 g - 1, and d / 8, which is exact, the scale.

use super::codebooks::IQ1_GRID;
use super::u16_at;
use crate::block::{BlockFormat, Integers, Scales, half_at, quarters};

/// Block: d (half), 32 x 8 lower bits of codebook indices, then 16 bits for each of the 8 sub-blocks of 32 values: four times 3
/// upper bits, 3 bits of sub-scale, one bit for moved down. value = d / 8 * (1 + 2 * scale) * (8 g +- 1).
pub struct IQ1_S;
/// Block: 32 x 8 lower bits of codebook indices, 32 x 4 bits (3 upper bits, one for moved down), then four words of 16 bits: four
/// sub-scales of 3 bits for 16 values each, and 4 bits of d (half) on top, lowest first. Values as in IQ1_S.
pub struct IQ1_M;

/// The codes of a group: the entry of eight times g, moved.
#[inline(always)]
fn moved(index: u16, down: bool) -> [i8; 8] {
    IQ1_GRID[usize::from(index)].map(|g| if down { g - 1 } else { g + 1 })
}

impl BlockFormat for IQ1_S {
    type Bytes = [u8; 50];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 9;
    const MAX_SUB: i32 = 15;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 50]) -> Self::Integers {
        let word = |j: usize| u16_at(b, 34 + 2 * j);
        let mut codes = [0; 256];
        for (g, group) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = word(g / 4) >> (g % 4 * 3) & 7;
            *group = moved(u16::from(b[2 + g]) | high << 8, word(g / 4) >> 15 == 1);
        }
        Integers::scaled(half_at(b, 0) * 0.125, std::array::from_fn(|j| (word(j) >> 12 & 7) as i8 * 2 + 1), codes)
    }
}

impl BlockFormat for IQ1_M {
    type Bytes = [u8; 56];
    type Integers = Integers<256, 16, 1>;
    const MAX_CODE: i32 = 9;
    const MAX_SUB: i32 = 15;
    const SCALES: Scales = Scales::Quarters(48);

    #[inline(always)]
    fn integers(b: &[u8; 56]) -> Self::Integers {
        let mut codes = [0; 256];
        for (g, group) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let four = b[32 + g / 2] >> (g % 2 * 4);
            *group = moved(u16::from(b[g]) | u16::from(four & 7) << 8, four & 8 != 0);
        }
        let d = half::f16::from_bits(quarters(b, 48)).to_f32_const();
        let subs = std::array::from_fn(|j| (u16_at(b, 48 + j / 4 * 2) >> (j % 4 * 3) & 7) as i8 * 2 + 1);
        Integers::scaled(d * 0.125, subs, codes)
    }
}
