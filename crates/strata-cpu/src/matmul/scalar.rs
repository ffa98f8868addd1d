//! The scalar definition as a kernel: GGUF rows, one dot product after another.

use super::Matrix;
use super::kernel::{Kernel, Tile};
use crate::simd::Simd;
use crate::versions;
use strata_ops::matmul::dot_row;

versions! { mod tile_kernel = scalar_tile; (w: &Matrix, tile: &Tile<'_>) }

/// The kernel for a level.
pub(super) fn pick(simd: Simd) -> Kernel {
    tile_kernel::pick(simd)
}

#[inline(always)]
fn scalar_tile(w: &Matrix, tile: &Tile<'_>) {
    for i in tile.items.clone() {
        let columns = tile.rows.start - tile.first..tile.rows.end - tile.first;
        // SAFETY: the caller of a kernel promises that no one else accesses the tile's outputs.
        let out = unsafe { tile.out.row(tile.out_rows.get(i), columns) };
        for (y, r) in out.iter_mut().zip(tile.rows.clone()) {
            *y = dot_row(w.dtype, w.row(r), tile.acts, tile.act_rows.get(i));
        }
    }
}
