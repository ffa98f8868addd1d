//! Keys of the block scorer: one pooled key for every complete block and the stand-in of the incomplete tail.

use super::{BLOCK, INDEX_DIM};
use crate::norm::rms_norm_in_place;
use crate::rope::rotate;

/// The pooled key of a block: `((k0 + k1) + (k2 + k3)) * 0.25`, RMS norm, rotation at the block's **first** cell,
/// whose cos and sin these are. `raw` holds the four raw keys (neither normed nor rotated).
#[inline(always)]
pub fn pooled_key(raw: [&[f32]; BLOCK], gain: &[f32], eps: f32, cos: &[f32], sin: &[f32], out: &mut [f32]) {
    for (i, o) in out.iter_mut().enumerate() {
        *o = ((raw[0][i] + raw[1][i]) + (raw[2][i] + raw[3][i])) * 0.25;
    }
    rms_norm_in_place(out, gain, eps);
    rotate(out, cos, sin);
}

/// The key that stands for the incomplete tail: the normed raw key of cell 0 (the rotation at position 0 is the
/// identity).
#[inline(always)]
pub fn dead_key(raw: &[f32], gain: &[f32], eps: f32, out: &mut [f32]) {
    out.copy_from_slice(&raw[..INDEX_DIM]);
    rms_norm_in_place(out, gain, eps);
}
