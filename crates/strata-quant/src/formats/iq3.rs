//! IQ3_S and IQ3_XXS: groups of four magnitudes from a codebook, and their signs.

use super::codebooks::{EVEN_SIGNS, IQ3_S_GRID, IQ3_XXS_GRID};
use super::{nibble, signed, u16_at, u32_at};
use crate::block::{BlockFormat, Integers, Scales, half_at};

/// Block: d (half), then for its 256 values 64 x 8 lower bits of codebook indices, 64 upper bits, 256 signs, and 8 x 4 bits
/// of sub-scales. An index gives 4 values, a sub-scale is for 32. value = d * (1 + 2 * scale) * code.
pub struct IQ3_S;
/// Block: d (half), 64 codebook indices of 4 values each, then a word for each of the 8 sub-blocks of 32 values: four indices of
/// 7 bits into the even signs, and 4 bits of sub-scale on top. value = d / 4 * (1 + 2 * scale) * code.
pub struct IQ3_XXS;

impl BlockFormat for IQ3_S {
    type Bytes = [u8; 110];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 15;
    const MAX_SUB: i32 = 31;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 110]) -> Self::Integers {
        let mut codes = [0; 256];
        for (g, group) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let high = b[66 + g / 8] >> (g % 8) & 1;
            let entry = IQ3_S_GRID[usize::from(u16::from_le_bytes([b[2 + g], high]))];
            *group = signed(entry, b[74 + g / 2] >> (4 * (g % 2)));
        }
        Integers::scaled(half_at(b, 0), std::array::from_fn(|j| nibble(&b[106..], j) as i8 * 2 + 1), codes)
    }
}

impl BlockFormat for IQ3_XXS {
    type Bytes = [u8; 98];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = 62;
    const MAX_SUB: i32 = 31;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 98]) -> Self::Integers {
        let mut codes = [0; 256];
        for (g, group) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let signs = EVEN_SIGNS[(u32_at(b, 66 + g / 8 * 4) >> (g % 8 / 2 * 7) & 127) as usize];
            *group = signed(IQ3_XXS_GRID[usize::from(b[2 + g])], signs >> (4 * (g % 2)));
        }
        // a quarter of a half is exact
        Integers::scaled(half_at(b, 0) * 0.25, std::array::from_fn(|j| (u16_at(b, 68 + 4 * j) >> 12) as i8 * 2 + 1), codes)
    }
}
