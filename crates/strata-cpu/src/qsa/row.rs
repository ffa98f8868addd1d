//! Attention of one query row over its cells: by one thread, or spread over all.

use super::disjoint::Disjoint;
use super::kernels::QsaKernels;
use super::scratch::{Heads, Shared, Worker, lock};
use crate::pool::Pool;
use std::sync::Mutex;
use strata_ops::qsa::attend::Merge;
use strata_ops::qsa::kv::KvRows;
use strata_ops::qsa::{CHUNK, HEAD_DIM};

/// The cells one row attends to, in the order of the chunks.
#[derive(Clone, Copy)]
pub(crate) enum Cells<'a> {
    /// Cells 0..n.
    All(usize),
    Ids(&'a [i32]),
}

impl Cells<'_> {
    pub fn count(&self) -> usize {
        match self {
            Cells::All(n) => *n,
            Cells::Ids(ids) => ids.len(),
        }
    }

    fn chunks(&self) -> usize {
        self.count().div_ceil(CHUNK)
    }

    /// The ids of chunk `i`; `buf` is used if they are not stored.
    fn chunk<'b>(&'b self, i: usize, buf: &'b mut [i32; CHUNK]) -> &'b [i32] {
        let r = i * CHUNK..((i + 1) * CHUNK).min(self.count());
        match self {
            Cells::Ids(ids) => &ids[r],
            Cells::All(_) => {
                for (b, c) in buf.iter_mut().zip(r.clone()) {
                    *b = c as i32;
                }
                &buf[..r.len()]
            }
        }
    }
}

/// One row, `q` and `out` `[heads][256]`, by the calling thread.
pub(crate) fn row_alone(kernels: &QsaKernels, kv: &KvRows<'_>, q: &[f32], cells: Cells<'_>, heads: &mut Heads, out: &mut [f32]) {
    let group = q.len() / kv.kv_heads;
    let Heads { query, chunk, states } = heads;
    let mut buf = [0; CHUNK];
    for (kv_head, (q, out)) in q.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate() {
        kernels.prepare(&kv.k, q, query);
        states.fill(Merge::default());
        for i in 0..cells.chunks() {
            kernels.chunk(kv, kv_head, query, cells.chunk(i, &mut buf), chunk);
            kernels.merge(chunk, states);
        }
        kernels.finish(&kv.v, states, out);
    }
}

/// The same row spread over the threads: chunks, then heads, a window of chunks at a time.
#[allow(clippy::too_many_arguments)]
pub(crate) fn row_spread(
    pool: &Pool,
    kernels: &QsaKernels,
    kv: &KvRows<'_>,
    q: &[f32],
    cells: Cells<'_>,
    workers: &[Mutex<Worker>],
    shared: &mut Shared,
    out: &mut [f32],
) {
    let (kv_heads, heads) = (kv.kv_heads, q.len() / HEAD_DIM);
    let group = heads / kv_heads;
    let Shared { queries, window, ml, acc, states } = shared;
    let window = *window;
    for (q, query) in q.chunks_exact(group * HEAD_DIM).zip(queries.iter_mut()) {
        kernels.prepare(&kv.k, q, query);
    }
    states.fill(Merge::default());
    for from in (0..cells.chunks()).step_by(window) {
        let n = (cells.chunks() - from).min(window);
        let (ml_out, acc_out, queries) = (Disjoint::new(ml), Disjoint::new(acc), &*queries);
        pool.run(kv_heads * n, &|task, w| {
            let (kv_head, i) = (task / n, task % n);
            let buf = &mut lock(&workers[w]).heads.chunk;
            kernels.chunk(kv, kv_head, &queries[kv_head], cells.chunk(from + i, &mut [0; CHUNK]), buf);
            for (h, a) in buf.acc.as_chunks::<HEAD_DIM>().0.iter().enumerate() {
                let at = (kv_head * group + h) * window + i;
                // SAFETY: one task has this chunk of these heads.
                unsafe {
                    ml_out.range(at..at + 1)[0] = [buf.m[h], buf.l[h]];
                    acc_out.range(at * HEAD_DIM..(at + 1) * HEAD_DIM).copy_from_slice(a);
                }
            }
        });
        let (ml, acc, states) = (&*ml, &*acc, Disjoint::new(states));
        pool.ranges(heads, group.div_ceil(4), &|heads, _| {
            for h in heads {
                // SAFETY: one task has the head.
                let state = unsafe { &mut states.range(h..h + 1)[0] };
                kernels.merge_stored(&ml[h * window..][..n], &acc[h * window * HEAD_DIM..], state);
            }
        });
    }
    kernels.finish(&kv.v, states, out);
}
