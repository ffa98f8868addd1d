//! Attention over float rows (f32, fp16, q4_0, the values of k8v4): the defined orders, heads of a group together.

use super::group::{ChunkBuf, GroupQuery, lanes};
use strata_ops::math::butterfly;
use strata_ops::qsa::kv::Rows;
use strata_ops::qsa::{CHUNK, HEAD_DIM};

/// Scores of a chunk: every key row is decoded once for all heads.
#[inline(always)]
pub(super) fn scores_f32(keys: &Rows<'_>, rows: &[usize], q: &GroupQuery, buf: &mut ChunkBuf) {
    let (mut key, mut k) = ([0.0; HEAD_DIM], [0.0; HEAD_DIM]);
    for (c, row) in rows.iter().enumerate() {
        keys.decode(*row, &mut key);
        lanes(&key, &mut k);
        for (q, p) in q.lanes.as_chunks::<HEAD_DIM>().0.iter().zip(buf.p.as_chunks_mut::<CHUNK>().0) {
            let (q, k) = (q.as_chunks::<32>().0, k.as_chunks::<32>().0);
            let mut s = [0.0f32; 32];
            for l in 0..32 {
                s[l] = k[0][l] * q[0][l];
            }
            for j in 1..8 {
                for l in 0..32 {
                    s[l] = k[j][l].mul_add(q[j][l], s[l]);
                }
            }
            p[c] = butterfly(s) * 0.0625;
        }
    }
}

/// Weighted values of a chunk: every value row is decoded once; 32 dimensions of one head at a time.
#[inline(always)]
pub(super) fn values_f32(values: &Rows<'_>, rows: &[usize], buf: &mut ChunkBuf) {
    let decoded = &mut buf.values.as_chunks_mut::<HEAD_DIM>().0[..rows.len()];
    for (row, out) in rows.iter().zip(decoded.iter_mut()) {
        values.decode(*row, out);
    }
    for (p, acc) in buf.p.as_chunks::<CHUNK>().0.iter().zip(buf.acc.as_chunks_mut::<HEAD_DIM>().0) {
        for (t, acc) in acc.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let mut a = [0.0f32; 32];
            for (v, p) in decoded.iter().zip(p) {
                let v = &v.as_chunks::<32>().0[t];
                for i in 0..32 {
                    a[i] = p.mul_add(v[i], a[i]);
                }
            }
            *acc = a;
        }
    }
}
