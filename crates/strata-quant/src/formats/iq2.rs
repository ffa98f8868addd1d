//! IQ2_XXS, IQ2_XS, IQ2_S: groups of eight magnitudes (8, 25 or 43) from a codebook, and their signs.
//!
//! The values are d * (1 / 2 + scale) / 4 * code: the sub-scales are 2 * scale + 1, and d / 8, which is exact, the scale.

use std::sync::LazyLock;

use super::codebooks::{EVEN_SIGNS, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID};
use super::{nibble, sign_bits, signed, u16_at, u32_at};
use crate::block::{BlockFormat, Encode, Integers, Scales, half_at};
use crate::encode::grid::Grid;
use crate::encode::{SubScales, Values, blocks, half_of, super_block};

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
    const ENCODE: Option<Encode> = Some(encode_iq2_xxs);

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
    const ENCODE: Option<Encode> = Some(encode_iq2_xs);

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
    const ENCODE: Option<Encode> = Some(encode_iq2_s);

    #[inline(always)]
    fn integers(b: &[u8; 82]) -> Self::Integers {
        let codes = codes(|g| {
            let high = b[66 + g / 4] >> (g % 4 * 2) & 3;
            signed(IQ2_S_GRID[usize::from(u16::from_le_bytes([b[2 + g], high]))], b[34 + g])
        });
        Integers::scaled(half_at(b, 0) * 0.125, std::array::from_fn(|j| nibble(&b[74..], j) as i8 * 2 + 1), codes)
    }
}

const LEVELS: [i8; 3] = [8, 25, 43];
static SEARCH_XXS: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&IQ2_XXS_GRID, &LEVELS, true));
static SEARCH_XS: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&IQ2_XS_GRID, &LEVELS, true));
static SEARCH_S: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&IQ2_S_GRID, &LEVELS, false));

fn encode_iq2_xxs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 8>(&*SEARCH_XXS, v, SubScales::ODD, 8.0)?;
        let mut b = [0; 66];
        b[..2].copy_from_slice(&half_of(8.0 * w.d[0]).to_le_bytes());
        for (j, codes) in w.codes.as_chunks::<32>().0.iter().enumerate() {
            let mut word = u32::from(w.subs[j] as u8 / 2) << 28;
            for (i, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
                b[2 + 8 * j + i] = SEARCH_XXS.index(codes) as u8;
                word |= u32::from(sign_bits(codes) & 127) << (7 * i);
            }
            b[6 + 8 * j..][..4].copy_from_slice(&word.to_le_bytes());
        }
        Some(b)
    });
}

fn encode_iq2_xs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 16>(&*SEARCH_XS, v, SubScales::ODD, 8.0)?;
        let mut b = [0; 74];
        b[..2].copy_from_slice(&half_of(8.0 * w.d[0]).to_le_bytes());
        for (g, codes) in w.codes.as_chunks::<8>().0.iter().enumerate() {
            let word = SEARCH_XS.index(codes) as u16 | u16::from(sign_bits(codes) & 127) << 9;
            b[2 + 2 * g..][..2].copy_from_slice(&word.to_le_bytes());
        }
        (0..16).for_each(|j| b[66 + j / 2] |= (w.subs[j] as u8 / 2) << (j % 2 * 4));
        Some(b)
    });
}

fn encode_iq2_s(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    blocks(values, importance, out, |v: &Values<256>| {
        let w = super_block::<_, 16>(&*SEARCH_S, v, SubScales::ODD, 8.0)?;
        let mut b = [0; 82];
        b[..2].copy_from_slice(&half_of(8.0 * w.d[0]).to_le_bytes());
        for (g, codes) in w.codes.as_chunks::<8>().0.iter().enumerate() {
            let index = SEARCH_S.index(codes);
            b[2 + g] = index as u8;
            b[34 + g] = sign_bits(codes);
            b[66 + g / 4] |= ((index >> 8) as u8) << (g % 4 * 2);
        }
        (0..16).for_each(|j| b[74 + j / 2] |= (w.subs[j] as u8 / 2) << (j % 2 * 4));
        Some(b)
    });
}
