//! IQ2_XXS, IQ2_XS, IQ2_S: groups of eight magnitudes (8, 25 or 43) from a codebook, and their signs.
//!
//! The values are d * (1 / 2 + scale) / 4 * code: the sub-scales are 2 * scale + 1, and d / 8, which is exact, the scale.

use super::codebooks::{EVEN_SIGNS, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID};
use super::{nibble, signed, u16_at, u32_at};
use crate::block::{BlockFormat, Integers, Scales, half_at};

/// Block: d (half), then two words for each of the 8 sub-blocks of 32 values: four codebook indices of 8 bits; four indices of
/// 7 bits into the even signs, and 4 bits of sub-scale on top.
pub struct IQ2_XXS;
/// Block: d (half), 32 x 16 bits (9 of a codebook index, 7 of an index into the even signs), 16 x 4 bits of sub-scales for 16
/// values each.
pub struct IQ2_XS;
/// Block: d (half), 32 x 8 lower bits of codebook indices, 256 signs, 32 x 2 upper bits, 16 x 4 bits of sub-scales for 16 values
/// each.
pub struct IQ2_S;

const MAX_CODE: i32 = 43;
const MAX_SUB: i32 = 31;

/// The codes of a block by its groups.
#[inline(always)]
fn codes(group: impl Fn(usize) -> [i8; 8]) -> [i8; 256] {
    let mut codes = [0; 256];
    codes.as_chunks_mut().0.iter_mut().enumerate().for_each(|(g, to)| *to = group(g));
    codes
}

impl BlockFormat for IQ2_XXS {
    type Bytes = [u8; 66];
    type Integers = Integers<256, 8, 1>;
    const MAX_CODE: i32 = MAX_CODE;
    const MAX_SUB: i32 = MAX_SUB;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 66]) -> Self::Integers {
        let codes = codes(|g| {
            let signs = EVEN_SIGNS[(u32_at(b, 6 + g / 4 * 8) >> (g % 4 * 7) & 127) as usize];
            signed(IQ2_XXS_GRID[usize::from(b[2 + g / 4 * 8 + g % 4])], signs)
        });
        Integers::scaled(half_at(b, 0) * 0.125, std::array::from_fn(|j| (u16_at(b, 8 + 8 * j) >> 12) as i8 * 2 + 1), codes)
    }
}

impl BlockFormat for IQ2_XS {
    type Bytes = [u8; 74];
    type Integers = Integers<256, 16, 1>;
    const MAX_CODE: i32 = MAX_CODE;
    const MAX_SUB: i32 = MAX_SUB;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 74]) -> Self::Integers {
        let codes = codes(|g| {
            let word = usize::from(u16_at(b, 2 + 2 * g));
            signed(IQ2_XS_GRID[word & 511], EVEN_SIGNS[word >> 9])
        });
        Integers::scaled(half_at(b, 0) * 0.125, std::array::from_fn(|j| nibble(&b[66..], j) as i8 * 2 + 1), codes)
    }
}

impl BlockFormat for IQ2_S {
    type Bytes = [u8; 82];
    type Integers = Integers<256, 16, 1>;
    const MAX_CODE: i32 = MAX_CODE;
    const MAX_SUB: i32 = MAX_SUB;
    const SCALES: Scales = Scales::Half(&[0]);

    #[inline(always)]
    fn integers(b: &[u8; 82]) -> Self::Integers {
        let codes = codes(|g| {
            let high = b[66 + g / 4] >> (g % 4 * 2) & 3;
            signed(IQ2_S_GRID[usize::from(u16::from_le_bytes([b[2 + g], high]))], b[34 + g])
        });
        Integers::scaled(half_at(b, 0) * 0.125, std::array::from_fn(|j| nibble(&b[74..], j) as i8 * 2 + 1), codes)
    }
}
