//! Tables of the formats whose codes name groups of values, as `kernels/products/formats/iq_grid.cuh` reads them.

use strata_quant::{DType, IQ2_XS_GRID, IQ2_XS_SIGNS, IQ3_S_GRID};

/// The words of a format's table; most formats have none.
pub fn table(dtype: DType) -> Vec<u32> {
    match dtype {
        DType::IQ3_S => IQ3_S_GRID.iter().map(|g| u32::from_le_bytes(g.map(|v| v as u8))).collect(),
        DType::IQ2_XS => {
            let (groups, signs) = (IQ2_XS_GRID.iter(), IQ2_XS_SIGNS.iter());
            let signs = signs.map(|s| std::array::from_fn(|i| s >> i & 1));
            groups.map(|g| g.map(|v| v as u8)).chain(signs).flat_map(|g: [u8; 8]| halves(g)).collect()
        }
        _ => Vec::new(),
    }
}

fn halves(g: [u8; 8]) -> [u32; 2] {
    let v = u64::from_le_bytes(g);
    [v as u32, (v >> 32) as u32]
}
