//! RMS norms (NUMERICS.md section 4).

use crate::math::sum_squares;

/// `1 / sqrt(x)`: a rounded square root, then a rounded division.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// `out = (x * r) * gain` with `r = 1 / sqrt(sum(x^2) / n + eps)`, the sum by the 32-lane tree.
#[inline(always)]
pub fn rms_norm(x: &[f32], gain: &[f32], eps: f32, out: &mut [f32]) {
    let r = rsqrt(sum_squares(x) / x.len() as f32 + eps);
    for ((o, v), g) in out.iter_mut().zip(x).zip(gain) {
        *o = (v * r) * g;
    }
}

/// [`rms_norm`] in place.
#[inline(always)]
pub fn rms_norm_in_place(x: &mut [f32], gain: &[f32], eps: f32) {
    let r = rsqrt(sum_squares(x) / x.len() as f32 + eps);
    for (v, g) in x.iter_mut().zip(gain) {
        *v = (*v * r) * g;
    }
}

/// `x = (x * r) * scale` with `r = 1 / sqrt(sum(x^2) + eps)`: eps inside the root, on the sum.
#[inline(always)]
pub fn l2_norm_in_place(x: &mut [f32], eps: f32, scale: f32) {
    let r = rsqrt(sum_squares(x) + eps);
    for v in x.iter_mut() {
        *v = (*v * r) * scale;
    }
}
