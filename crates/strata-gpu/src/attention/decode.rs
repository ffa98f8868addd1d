//! Decode attention: chunks of the selected cells in workgroups of their own, then a merge in order.

use super::pool::{KvPool, PageTable};
use super::table::AttentionTable;
use super::{MAX_GROUP, grid, need, refuse};
use crate::device::{Arg, Buffer, Device};
use crate::error::Result;
use crate::registry;
use strata_ops::qsa::kv::{KvKind, RowKind};
use strata_ops::qsa::{CHUNK, HEAD_DIM};

/// Exact chunk kernels of a format, best first.
pub(super) fn candidates(kind: KvKind) -> &'static [&'static str] {
    match kind {
        KvKind::F32 => &[],
        KvKind::F16 => &["attn_chunk_fp16", "attn_chunk_fp16_plain"],
        KvKind::Int8 => &["attn_chunk_int8_tiles8", "attn_chunk_int8_tiles4", "attn_chunk_int8_dot"],
        KvKind::Q4_0 => &["attn_chunk_q4_0", "attn_chunk_q4_0_plain"],
        KvKind::K8V4 => &["attn_chunk_k8v4_tiles8", "attn_chunk_k8v4_dot", "attn_chunk_k8v4_plain"],
    }
}

/// Whether a chunk kernel reads a format; one of int8 does that is not exact.
pub(super) fn is_of_format(kernel: &str, kind: KvKind) -> bool {
    candidates(kind).contains(&kernel) || (kind == KvKind::Int8 && kernel == "attn_chunk_int8_f32")
}

/// The exact chunk kernels that a device has for a format; the first is the default.
pub fn chunk_kernels(device: &Device, kind: KvKind) -> Vec<&'static str> {
    candidates(kind).iter().copied().filter(|k| device.has(k)).collect()
}

/// What the queries of a call attend to. Query i has its step record (position, cells, complete blocks, width) at `4 i` of
/// `steps` and its selected cells at `i * cap` of `ids`, of which the first `min(width, cap)` count. Ids must be cells that
/// the page table knows.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    pub ids: &'a Buffer<i32>,
    pub steps: &'a Buffer<i32>,
    pub table: PageTable<'a>,
    pub queries: usize,
    pub cap: usize,
}

impl Selection<'_> {
    /// Chunk slots of a query.
    pub fn chunks(&self) -> usize {
        self.cap.div_ceil(CHUNK)
    }

    pub(super) fn check(&self, kernel: &str) -> Result<()> {
        if self.queries > 65_535 || self.cap > i32::MAX as usize - CHUNK {
            let found = format!("{} and {}", self.queries, self.cap);
            return Err(refuse(kernel, "at most 65,535 queries and a cap below 2^31", found));
        }
        need(kernel, "ids", self.ids.len(), self.queries * self.cap)?;
        need(kernel, "step records", self.steps.len(), 4 * self.queries)
    }
}

/// Partial results of chunks, `[query][KV head][chunk][head of the group]`: largest scores, sums of weights, weighted
/// values. Contents need no preparation.
pub struct DecodeScratch {
    pub m: Buffer<f32>,
    pub l: Buffer<f32>,
    pub acc: Buffer<f32>,
}

impl DecodeScratch {
    /// For `queries` queries of `heads` heads over selections of up to `cap` cells.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(device: &Device, queries: usize, heads: usize, cap: usize) -> Result<DecodeScratch> {
        let slots = queries.saturating_mul(heads).saturating_mul(cap.div_ceil(CHUNK));
        Ok(DecodeScratch { m: device.alloc(slots)?, l: device.alloc(slots)?, acc: device.alloc(slots.saturating_mul(HEAD_DIM))? })
    }
}

fn check_group(kernel: &str, pool: &KvPool, heads: usize) -> Result<usize> {
    let group = heads / pool.kv_heads();
    if group == 0 || group > MAX_GROUP || !heads.is_multiple_of(pool.kv_heads()) {
        let expected = format!("1 to {MAX_GROUP} query heads for each of {} KV heads", pool.kv_heads());
        return Err(refuse(kernel, expected, heads));
    }
    Ok(group)
}

/// Runs a chunk kernel of the pool's format. `q` is `[queries, heads, 256]`, normed and rotated by position.
///
/// # Errors
/// A kernel of another format, sizes that do not fit, or a driver's error.
pub fn launch_chunks(
    device: &Device,
    kernel: &str,
    pool: &KvPool,
    q: &Buffer<f32>,
    heads: usize,
    selection: &Selection<'_>,
    scratch: &mut DecodeScratch,
) -> Result<()> {
    let threads = registry::find(kernel).filter(|_| is_of_format(kernel, pool.kind())).map(|k| k.threads);
    let threads = threads.ok_or_else(|| refuse(kernel, format!("a chunk kernel of {}", pool.kind().name()), kernel))?;
    let group = check_group(kernel, pool, heads)?;
    selection.check(kernel)?;
    need(kernel, "q", q.len(), selection.queries * heads * HEAD_DIM)?;
    let slots = selection.queries * heads * selection.chunks();
    need(kernel, "m", scratch.m.len(), slots)?;
    need(kernel, "l", scratch.l.len(), slots)?;
    need(kernel, "acc", scratch.acc.len(), slots * HEAD_DIM)?;
    let [k, ks, v, vs] = pool.args();
    let args = [
        q.arg(),
        selection.ids.arg(),
        selection.steps.arg(),
        selection.table.pages.arg(),
        k,
        ks,
        v,
        vs,
        scratch.m.arg(),
        scratch.l.arg(),
        scratch.acc.arg(),
        Arg::I32(selection.cap as i32),
        Arg::I32(group as i32),
        selection.table.stride_arg()?,
    ];
    device.launch(kernel, grid([selection.chunks(), pool.kv_heads(), selection.queries], threads)?, &args)
}

/// Merges the chunks of every head into `out`, `[queries, heads, 256]`, rotated back if value rows are rotated.
///
/// # Errors
/// Sizes that do not fit, or a driver's error.
pub fn launch_merge(
    device: &Device,
    pool: &KvPool,
    heads: usize,
    selection: &Selection<'_>,
    scratch: &DecodeScratch,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let kernel = if pool.kind().values() == RowKind::Q4_0 { "attn_merge_rotated" } else { "attn_merge" };
    let group = check_group(kernel, pool, heads)?;
    selection.check(kernel)?;
    need(kernel, "out", out.len(), selection.queries * heads * HEAD_DIM)?;
    need(kernel, "acc", scratch.acc.len(), selection.queries * heads * selection.chunks() * HEAD_DIM)?;
    let args = [selection.steps.arg(), scratch.m.arg(), scratch.l.arg(), scratch.acc.arg(), out.arg(), Arg::I32(selection.chunks() as i32)];
    device.launch(kernel, grid([group, pool.kv_heads(), selection.queries], 256)?, &args)
}

/// Attention of `heads` heads a query over its selection, by the table's kernel: the bits of
/// [`attend_head_paged`](strata_ops::qsa::attend::attend_head_paged).
///
/// # Errors
/// As [`launch_chunks`].
#[expect(clippy::too_many_arguments, reason = "the table beside what every launch takes")]
pub fn attend_decode(
    device: &Device,
    table: &AttentionTable,
    pool: &KvPool,
    q: &Buffer<f32>,
    heads: usize,
    selection: &Selection<'_>,
    scratch: &mut DecodeScratch,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let kernel = table.chunk_on(&device.info().arch, pool.kind());
    let kernel = kernel.ok_or_else(|| refuse("attention", "a KV format with kernels", pool.kind().name()))?;
    launch_chunks(device, kernel, pool, q, heads, selection, scratch)?;
    launch_merge(device, pool, heads, selection, scratch, out)
}
