//! The gate of the n-gram (PLE) module.

use crate::math::{dot, sigmoid};

/// `u[s] = sigmoid(b[s]) * v` with `a[s] = dot(key[s], query[s]) / sqrt(hidden)` (lane tree of 32) and
/// `b = sign(a) * sqrt(max(|a|, 1e-6))`, sign(0) = 0.
///
/// `key`, `query` (both normalised), `u`: `[streams, hidden]`; `v`: `[hidden]`.
#[inline(always)]
pub fn gate(key: &[f32], query: &[f32], v: &[f32], u: &mut [f32]) {
    let hidden = v.len();
    let root = (hidden as f32).sqrt();
    for ((k, q), u) in key.chunks_exact(hidden).zip(query.chunks_exact(hidden)).zip(u.chunks_exact_mut(hidden)) {
        let a = dot::<32>(k, q) / root;
        let size = (if a.abs() > 1e-6 { a.abs() } else { 1e-6 }).sqrt();
        let b = if a > 0.0 {
            size
        } else if a < 0.0 {
            -size
        } else {
            0.0
        };
        let g = sigmoid(b);
        for (u, v) in u.iter_mut().zip(v) {
            *u = g * v;
        }
    }
}

/// `r = r + (u + c)`, elementwise: the module's output `u + silu(conv)` added to the residual.
#[inline(always)]
pub fn add(r: &mut [f32], u: &[f32], c: &[f32]) {
    for ((r, u), c) in r.iter_mut().zip(u).zip(c) {
        *r += u + c;
    }
}
