//! The query heads of one KV head, and their working memory over one chunk of cells.

use super::int8::{DotsFn, ValuesFn};
use strata_ops::math::{butterfly, exp};
use strata_ops::qsa::attend::Merge;
use strata_ops::qsa::digits::{integer, scale_of, split};
use strata_ops::qsa::hadamard::hadamard_in_place;
use strata_ops::qsa::kv::{KvRows, Rows};
use strata_ops::qsa::{CHUNK, HEAD_DIM, row_of};

use super::float::{FloatDotsFn, scores_f32, values_f32};
use super::int8::{scores_int8, values_int8};
use super::largest::{amax, largest};
use super::prefetch::Ahead;
use super::shape::MAX_GROUP;

/// Query heads made ready for one kind of key rows.
pub(crate) struct GroupQuery {
    /// For float keys, `[head][8][32]`: element 8 l + j of the head at `[j][l]`. Zero heads fill up a whole four.
    pub lanes: Vec<f32>,
    /// For int8 keys, `[head][256]`: digit 0, and digits 1 and 2 as one number.
    pub d0: Vec<i16>,
    pub d12: Vec<i16>,
    pub scale: [f32; MAX_GROUP],
}

impl GroupQuery {
    pub fn new(heads: usize) -> GroupQuery {
        let n = heads * HEAD_DIM;
        GroupQuery { lanes: vec![0.0; heads.next_multiple_of(4) * HEAD_DIM], d0: vec![0; n], d12: vec![0; n], scale: [0.0; MAX_GROUP] }
    }
}

impl GroupQuery {
    /// Bytes of [`GroupQuery::new`].
    pub fn bytes(heads: usize) -> usize {
        (heads.next_multiple_of(4) * 4 + heads * 4) * HEAD_DIM
    }
}

/// Scores, weights and weighted values of a group over one chunk.
pub(crate) struct ChunkBuf {
    /// `[head][64]`: scores, then weights.
    pub p: Vec<f32>,
    pub m: [f32; MAX_GROUP],
    pub l: [f32; MAX_GROUP],
    /// `[head][256]`
    pub acc: Vec<f32>,
    /// Dots of one key row, whole fours of heads.
    pub dots: Vec<f32>,
    /// Decoded value rows, `[64][256]`.
    pub values: Vec<f32>,
    /// One scale group of the value codes, cells in pairs: `[32][64][2]`.
    pub pairs: Vec<i16>,
    /// Digit dots of eight cells: `[head][group][8]`.
    pub s0: Vec<i32>,
    pub s12: Vec<i32>,
}

impl ChunkBuf {
    pub fn new(heads: usize) -> ChunkBuf {
        ChunkBuf {
            p: vec![0.0; heads * CHUNK],
            m: [0.0; MAX_GROUP],
            l: [0.0; MAX_GROUP],
            acc: vec![0.0; heads * HEAD_DIM],
            dots: vec![0.0; heads.next_multiple_of(4)],
            values: vec![0.0; CHUNK * HEAD_DIM],
            pairs: vec![0; CHUNK * 64],
            s0: vec![0; heads * 32],
            s12: vec![0; heads * 32],
        }
    }
}

impl ChunkBuf {
    /// Bytes of [`ChunkBuf::new`].
    pub fn bytes(heads: usize) -> usize {
        4 * (heads * (CHUNK + HEAD_DIM + 64) + heads.next_multiple_of(4) + CHUNK * HEAD_DIM + CHUNK * 32)
    }
}

/// Prepares the heads of a group; `q` is `[head][256]`.
#[inline(always)]
pub(crate) fn prepare(keys: &Rows<'_>, q: &[f32], out: &mut GroupQuery) {
    let out_lanes = out.lanes.as_chunks_mut::<HEAD_DIM>().0;
    let (d0, d12) = (out.d0.as_chunks_mut::<HEAD_DIM>().0, out.d12.as_chunks_mut::<HEAD_DIM>().0);
    for (h, q) in q.as_chunks::<HEAD_DIM>().0.iter().enumerate() {
        if let Rows::Int8 { .. } = keys {
            let (scale, factor) = scale_of(amax(q));
            out.scale[h] = scale;
            to_digits(q, factor, &mut d0[h], &mut d12[h]);
        } else {
            let mut q = *q;
            if let Rows::Q4_0(_) = keys {
                hadamard_in_place(&mut q);
            }
            lanes(&q, &mut out_lanes[h]);
        }
    }
}

/// Digits of a row.
#[inline(always)]
pub(crate) fn to_digits<const N: usize>(x: &[f32; N], factor: f32, d0: &mut [i16; N], d12: &mut [i16; N]) {
    for i in 0..N {
        (d0[i], d12[i]) = split(integer(x[i], factor));
    }
}

/// Element 8 l + j to `[j][l]`.
#[inline(always)]
pub(crate) fn lanes(x: &[f32; HEAD_DIM], out: &mut [f32; HEAD_DIM]) {
    for l in 0..32 {
        for j in 0..8 {
            out[32 * j + l] = x[8 * l + j];
        }
    }
}

/// Kernels inside a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    pub float_dots: FloatDotsFn,
    pub dots: DotsFn,
    pub values: ValuesFn,
}

/// One chunk of up to 64 cells for all heads of a group: fills `m`, `l` and `acc` of the buffer.
#[inline(always)]
pub(crate) fn chunk(kv: &KvRows<'_>, kv_head: usize, q: &GroupQuery, cells: &[i32], buf: &mut ChunkBuf, inner: Inner) {
    let mut rows = [0usize; CHUNK];
    for (r, c) in rows.iter_mut().zip(cells) {
        *r = row_of(*c as usize, kv_head, kv.kv_heads);
    }
    let rows = &rows[..cells.len()];
    let ahead = Ahead::new(kv, rows);
    match kv.k {
        Rows::Int8 { codes, scales } => scores_int8(codes, scales, rows, q, buf, inner.dots, ahead),
        keys => scores_f32(&keys, rows, q, buf, inner.float_dots, ahead),
    }
    weights(rows.len(), buf);
    match kv.v {
        Rows::Int8 { codes, scales } => values_int8(codes, scales, rows, buf, inner.values),
        v => values_f32(&v, rows, buf),
    }
}

/// Scores to weights: m, p = exp(score - m), l = the lane tree of p.
#[inline(always)]
fn weights(cells: usize, buf: &mut ChunkBuf) {
    for (h, p) in buf.p.as_chunks_mut::<CHUNK>().0.iter_mut().enumerate() {
        let m = largest(&p[..cells]);
        for (i, s) in p.iter_mut().enumerate() {
            let e = exp(*s - m);
            *s = if i < cells { e } else { 0.0 };
        }
        buf.m[h] = m;
        buf.l[h] = butterfly::<32>(std::array::from_fn(|i| p[i] + p[i + 32]));
    }
}

/// Merges a chunk into the running state of each head.
#[inline(always)]
pub(crate) fn merge(buf: &ChunkBuf, states: &mut [Merge]) {
    for (h, (state, acc)) in states.iter_mut().zip(buf.acc.as_chunks::<HEAD_DIM>().0).enumerate() {
        state.push(buf.m[h], buf.l[h], acc);
    }
}

/// Merges the stored chunks of one head in order; `ml` holds the pairs (m, l).
#[inline(always)]
pub(crate) fn merge_stored(ml: &[[f32; 2]], acc: &[f32], state: &mut Merge) {
    for ([m, l], acc) in ml.iter().zip(acc.as_chunks::<HEAD_DIM>().0) {
        state.push(*m, *l, acc);
    }
}

/// The output rows of heads, rotated back if value rows are q4_0.
#[inline(always)]
pub(crate) fn finish(values: &Rows<'_>, states: &[Merge], out: &mut [f32]) {
    for (state, out) in states.iter().zip(out.as_chunks_mut::<HEAD_DIM>().0) {
        state.finish(out);
        if let Rows::Q4_0(_) = values {
            hadamard_in_place(out);
        }
    }
}
