//! Tables of the formats whose codes name groups of values, as `kernels/products/formats/iq_grid.cuh` reads them.

use strata_quant::DType;
use strata_quant::formats::{EVEN_SIGNS, IQ2_XS_GRID, IQ3_S_GRID};

/// The words of a format's table; most formats have none.
pub fn table(dtype: DType) -> Vec<u32> {
    match dtype {
        DType::IQ3_S => IQ3_S_GRID.iter().map(|g| u32::from_le_bytes(g.map(|v| v as u8))).collect(),
        DType::IQ2_XS => {
            let groups =
                IQ2_XS_GRID.iter().map(|g| nibbles(g.map(|v| MAGNITUDES.iter().position(|m| *m == i32::from(v)).unwrap_or(0) as u32)));
            let signs = EVEN_SIGNS.iter().map(|s| nibbles(std::array::from_fn(|i| u32::from(s >> i & 1) << 2)));
            groups.chain(signs).collect()
        }
        _ => Vec::new(),
    }
}

/// Magnitudes of IQ2_XS.
const MAGNITUDES: [i32; 3] = [8, 25, 43];

fn nibbles(v: [u32; 8]) -> u32 {
    v.iter().enumerate().map(|(i, n)| n << (4 * i)).sum()
}
