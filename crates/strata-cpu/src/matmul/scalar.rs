//! The scalar definition as a kernel: GGUF rows, one dot product after another.

use super::Matrix;
use super::kernel::{Kernel, Tile};
use strata_ops::matmul::dot_row;

/// The kernel. (Vector levels have others, so there is no version for them.)
pub(super) fn pick() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("fma") {
        return fma;
    }
    plain
}

unsafe fn plain(w: &Matrix, tile: &Tile<'_>) {
    scalar_tile(w, tile);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
unsafe fn fma(w: &Matrix, tile: &Tile<'_>) {
    scalar_tile(w, tile);
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
