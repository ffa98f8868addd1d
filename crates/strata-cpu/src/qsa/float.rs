//! Attention over float rows (f32, fp16, q4_0, the values of k8v4): the defined orders, heads of a group together.

use super::group::{ChunkBuf, GroupQuery, lanes};
use super::prefetch::Ahead;
use crate::simd::Simd;
use strata_ops::math::butterfly;
use strata_ops::qsa::kv::Rows;
use strata_ops::qsa::{CHUNK, HEAD_DIM};

/// Dots of one float key row with every head: `q` is `[heads][8][32]` with whole fours of heads, `out` has one entry
/// for each.
pub(crate) type FloatDotsFn = unsafe fn(key: &[f32; HEAD_DIM], q: &[f32], out: &mut [f32]);

/// Scores of a chunk: every key row is decoded once for all heads.
#[inline(always)]
pub(super) fn scores_f32(keys: &Rows<'_>, rows: &[usize], q: &GroupQuery, buf: &mut ChunkBuf, dots: FloatDotsFn, ahead: Ahead<'_>) {
    let mut decoded = [0.0; HEAD_DIM];
    for (c, row) in rows.iter().enumerate() {
        if c % Ahead::EACH == 0 {
            ahead.send(c);
        }
        // SAFETY: the kernels were picked for a level of this CPU.
        unsafe { dots(float_row(keys, *row, &mut decoded), &q.lanes, &mut buf.dots) };
        for (p, d) in buf.p.as_chunks_mut::<CHUNK>().0.iter_mut().zip(&buf.dots) {
            p[c] = d * 0.0625;
        }
    }
}

/// A row as floats: itself, or decoded to `buf`.
#[inline(always)]
fn float_row<'a>(rows: &Rows<'a>, row: usize, buf: &'a mut [f32; HEAD_DIM]) -> &'a [f32; HEAD_DIM] {
    if let Rows::F32(x) = rows {
        return x[row * HEAD_DIM..].first_chunk().expect("a row of the cache has 256 values");
    }
    rows.decode(row, buf);
    buf
}

/// [`FloatDotsFn`] in plain Rust.
#[inline(always)]
fn dots_body(key: &[f32; HEAD_DIM], q: &[f32], out: &mut [f32]) {
    let mut k = [0.0; HEAD_DIM];
    lanes(key, &mut k);
    let k = k.as_chunks::<32>().0;
    for (q, out) in q.as_chunks::<HEAD_DIM>().0.iter().zip(out) {
        let q = q.as_chunks::<32>().0;
        // loops, not closures: a closure would not be compiled for the level
        let mut p = [0.0f32; 32];
        for l in 0..32 {
            p[l] = k[0][l] * q[0][l];
        }
        for j in 1..8 {
            for l in 0..32 {
                p[l] = k[j][l].mul_add(q[j][l], p[l]);
            }
        }
        *out = butterfly(p);
    }
}

crate::versions! { mod portable = super::dots_body; (key: &[f32; HEAD_DIM], q: &[f32], out: &mut [f32]) }

/// The float dots of a level.
pub(super) fn pick(level: Simd) -> FloatDotsFn {
    #[cfg(target_arch = "x86_64")]
    match level {
        Simd::Scalar => {}
        Simd::Avx2 => return super::float_x86::dots_avx2,
        Simd::Avx512 | Simd::Avx512Vnni | Simd::Avx512Vbmi => return super::float_x86::dots_avx512,
    }
    portable::pick(level)
}

/// Dimensions summed together: eight registers of eight.
const TILE: usize = 64;

/// Weighted values of a chunk: every value row is decoded once; one tile of one head at a time.
#[inline(always)]
pub(super) fn values_f32(values: &Rows<'_>, rows: &[usize], buf: &mut ChunkBuf) {
    let mut decoded = [&[0.0f32; HEAD_DIM]; CHUNK];
    for ((d, row), buf) in decoded.iter_mut().zip(rows).zip(buf.values.as_chunks_mut::<HEAD_DIM>().0) {
        *d = float_row(values, *row, buf);
    }
    let decoded = &decoded[..rows.len()];
    for (p, acc) in buf.p.as_chunks::<CHUNK>().0.iter().zip(buf.acc.as_chunks_mut::<HEAD_DIM>().0) {
        for (t, acc) in acc.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
            let mut a = [0.0f32; TILE];
            for (v, p) in decoded.iter().zip(p) {
                let v = &v.as_chunks::<TILE>().0[t];
                for i in 0..TILE {
                    a[i] = p.mul_add(v[i], a[i]);
                }
            }
            *acc = a;
        }
    }
}
