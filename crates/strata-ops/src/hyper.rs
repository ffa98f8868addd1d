//! Hyper-connections: the gated read and write of a residual of several streams.

use crate::math::{sigmoid, silu};

/// Low-rank gate, in place: `lo = silu(lo * inv_streams)`; the scale comes before the silu.
#[inline(always)]
pub fn low_gate(lo: &mut [f32], inv_streams: f32) {
    for v in lo.iter_mut() {
        *v = silu(*v * inv_streams);
    }
}

/// `y[j] = inv_streams * sum_s sigmoid(up[s][j]) * norm[s][j]`, an FMA chain over the streams from +0.
///
/// `up`, `norm`: `[streams, hidden]`, `y`: `[hidden]`.
#[inline(always)]
pub fn mix(up: &[f32], norm: &[f32], inv_streams: f32, y: &mut [f32]) {
    let hidden = y.len();
    y.fill(0.0);
    for (u, n) in up.chunks_exact(hidden).zip(norm.chunks_exact(hidden)) {
        for ((y, u), n) in y.iter_mut().zip(u).zip(n) {
            *y = sigmoid(*u).mul_add(*n, *y);
        }
    }
    for y in y.iter_mut() {
        *y *= inv_streams;
    }
}

/// Injection weights, in place: `2 * sigmoid(x * inv_streams)`.
#[inline(always)]
pub fn inject_gate(x: &mut [f32], inv_streams: f32) {
    for v in x.iter_mut() {
        *v = 2.0 * sigmoid(*v * inv_streams);
    }
}

/// `r[s] = fma(inject[s], o, r[s])`. `r`: `[streams, hidden]`, `o`: `[hidden]`.
#[inline(always)]
pub fn write(r: &mut [f32], inject: &[f32], o: &[f32]) {
    for (r, i) in r.chunks_exact_mut(o.len()).zip(inject) {
        for (r, o) in r.iter_mut().zip(o) {
            *r = i.mul_add(*o, *r);
        }
    }
}
