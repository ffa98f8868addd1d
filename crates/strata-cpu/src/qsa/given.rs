//! Attention of query rows over given cells, without a selection.

use super::disjoint::Disjoint;
use super::error::{QsaError, check_len};
use super::group::{ChunkBuf, GroupQuery};
use super::kernels::QsaKernels;
use super::row::{Cells, row_alone};
use super::scratch::Heads;
use super::shape::MAX_GROUP;
use crate::pool::Pool;
use std::sync::Mutex;
use strata_ops::qsa::HEAD_DIM;
use strata_ops::qsa::attend::Merge;
use strata_ops::qsa::kv::KvRows;

/// Attention of rows over the cells that each is given: `ids[i]` for row i, whose queries and output are `[heads, 256]` at
/// `i * heads * 256` of `q` and `out`. The bits of [`attend_head`](strata_ops::qsa::attend::attend_head).
///
/// # Errors
/// [`QsaError`] if the heads are not 1 to 16 for each KV head or a buffer has the wrong length.
///
/// # Panics
/// If an id is negative or not a cell of `kv`.
pub fn attend_given(
    pool: &Pool,
    kernels: &QsaKernels,
    kv: &KvRows<'_>,
    heads: usize,
    q: &[f32],
    ids: &[&[i32]],
    out: &mut [f32],
) -> Result<(), QsaError> {
    let group = heads.checked_div(kv.kv_heads).unwrap_or(0);
    if group == 0 || group > MAX_GROUP || group * kv.kv_heads != heads {
        return Err(QsaError::Unsupported { field: "head count", found: heads, supported: "1 to 16 query heads for each KV head" });
    }
    let wide = heads * HEAD_DIM;
    check_len("q", q.len(), ids.len() * wide)?;
    check_len("out", out.len(), ids.len() * wide)?;
    let worker = || Heads { query: GroupQuery::new(group), chunk: ChunkBuf::new(group), states: vec![Merge::default(); group] };
    let workers: Vec<_> = (0..pool.threads()).map(|_| Mutex::new(worker())).collect();
    let out = Disjoint::new(out);
    pool.run(ids.len(), &|row, w| {
        let r = row * wide..(row + 1) * wide;
        // SAFETY: one task has the row.
        let out = unsafe { out.range(r.clone()) };
        let mut heads = workers[w].lock().unwrap_or_else(|e| e.into_inner());
        row_alone(kernels, kv, &q[r], Cells::Ids(ids[row]), &mut heads, out);
    });
    Ok(())
}
