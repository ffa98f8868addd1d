//! IQ3_S and IQ3_XXS: groups of four magnitudes from a codebook, and their signs.

use std::sync::LazyLock;

use super::codebooks::{EVEN_SIGNS, IQ3_S_GRID, IQ3_XXS_GRID};
use super::{nibble, sign_bits, signed, u16_at, u32_at};
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::grid::Grid;
use crate::encode::{SubScales, Values, blocks, half_of, super_block};

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
    const ENCODE: Option<Encode> = Some(encode_iq3_s);

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
    const ENCODE: Option<Encode> = Some(encode_iq3_xxs);

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

static SEARCH_S: LazyLock<Grid<4>> = LazyLock::new(|| Grid::new(&IQ3_S_GRID, &[1, 3, 5, 7, 9, 11, 13, 15], false));
static SEARCH_XXS: LazyLock<Grid<4>> = LazyLock::new(|| Grid::new(&IQ3_XXS_GRID, &[4, 12, 20, 28, 36, 44, 52, 62], true));

fn encode_iq3_s(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 8>(&*SEARCH_S, v, SubScales::ODD, 1.0)?;
        let mut b = [0; 110];
        b[..2].copy_from_slice(&half_of(w.d[0]).to_le_bytes());
        for (g, codes) in w.codes.as_chunks::<4>().0.iter().enumerate() {
            let index = SEARCH_S.index(codes);
            b[2 + g] = index as u8;
            b[66 + g / 8] |= ((index >> 8) as u8) << (g % 8);
            b[74 + g / 2] |= sign_bits(codes) << (g % 2 * 4);
        }
        (0..8).for_each(|j| b[106 + j / 2] |= (w.subs[j] as u8 / 2) << (j % 2 * 4));
        Some(b)
    });
}

fn encode_iq3_xxs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 8>(&*SEARCH_XXS, v, SubScales::ODD, 4.0)?;
        let mut b = [0; 98];
        b[..2].copy_from_slice(&half_of(4.0 * w.d[0]).to_le_bytes());
        w.codes.as_chunks::<4>().0.iter().enumerate().for_each(|(g, codes)| b[2 + g] = SEARCH_XXS.index(codes) as u8);
        for (j, codes) in w.codes.as_chunks::<32>().0.iter().enumerate() {
            let eights = codes.as_chunks::<8>().0.iter().enumerate();
            let signs = eights.fold(0, |word, (i, c)| word | u32::from(sign_bits(c) & 127) << (7 * i));
            let word = signs | u32::from(w.subs[j] as u8 / 2) << 28;
            b[66 + 4 * j..][..4].copy_from_slice(&word.to_le_bytes());
        }
        Some(b)
    });
}
