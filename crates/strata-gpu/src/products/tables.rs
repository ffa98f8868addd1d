//! Tables of the formats whose codes name groups of values, as their files in `kernels/products/formats` read them.

use strata_quant::DType;
use strata_quant::formats::{EVEN_SIGNS, IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};

/// The words of a format's table; most formats have none.
pub fn table(dtype: DType) -> Vec<u32> {
    match dtype {
        DType::IQ3_S => fours(&IQ3_S_GRID),
        DType::IQ3_XXS => fours(&IQ3_XXS_GRID),
        DType::IQ2_S => eights(&IQ2_S_GRID).collect(),
        DType::IQ2_XXS => eights(&IQ2_XXS_GRID).collect(),
        DType::IQ2_XS => {
            let signs = EVEN_SIGNS.iter().map(|s| nibbles(std::array::from_fn(|i| u32::from(s >> i & 1) << 2)));
            eights(&IQ2_XS_GRID).chain(signs).collect()
        }
        DType::IQ1_S | DType::IQ1_M => {
            // two groups, 1,024 apart, share a word
            let (low, high) = IQ1_GRID.split_at(IQ1_GRID.len() / 2);
            let rank = |v: i8| (i32::from(v) / 8 + 1) as u32;
            low.iter().zip(high).map(|(a, b)| nibbles(std::array::from_fn(|i| rank(a[i]) | rank(b[i]) << 2))).collect()
        }
        _ => Vec::new(),
    }
}

/// Magnitudes of the IQ2 formats.
const MAGNITUDES: [i8; 3] = [8, 25, 43];

/// A byte for each of four magnitudes.
fn fours(grid: &[[i8; 4]]) -> Vec<u32> {
    grid.iter().map(|g| u32::from_le_bytes(g.map(|v| v as u8))).collect()
}

/// A nibble for each of eight magnitudes.
fn eights(grid: &[[i8; 8]]) -> impl Iterator<Item = u32> {
    grid.iter().map(|g| nibbles(g.map(|v| MAGNITUDES.iter().position(|m| *m == v).unwrap_or(0) as u32)))
}

fn nibbles(v: [u32; 8]) -> u32 {
    v.iter().enumerate().map(|(i, n)| n << (4 * i)).sum()
}
