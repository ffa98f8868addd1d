//! Appending cells: KV rows, raw and pooled index keys.

use super::pool::{KvPool, PageTable};
use super::{grid, need, refuse};
use crate::device::{Arg, Buffer, Device};
use crate::error::Result;
use strata_ops::qsa::kv::KvKind;
use strata_ops::qsa::{HEAD_DIM, INDEX_DIM};

/// Writes `n` cells into a pool at the positions of their step records (`steps[4 i]`), `k` and `v` being `[n, kv_heads,
/// 256]`: the same bits whether in one call or in `n`. Pages of the cells must be resident.
///
/// # Errors
/// Buffers that are too small, or a driver's error.
pub fn append_cells(
    device: &Device,
    pool: &mut KvPool,
    steps: &Buffer<i32>,
    table: PageTable<'_>,
    k: &Buffer<f32>,
    v: &Buffer<f32>,
    n: usize,
) -> Result<()> {
    let name = match pool.kind() {
        KvKind::F16 => "kv_append_fp16",
        KvKind::Int8 => "kv_append_int8",
        KvKind::Q4_0 => "kv_append_q4_0",
        KvKind::K8V4 => "kv_append_k8v4",
        KvKind::F32 => return Err(refuse("kv append", "fp16, int8, q4_0 or k8v4", "f32")),
    };
    let values = n * pool.kv_heads() * HEAD_DIM;
    need(name, "k", k.len(), values)?;
    need(name, "v", v.len(), values)?;
    need(name, "step records", steps.len(), 4 * n)?;
    let [pk, pks, pv, pvs] = pool.args();
    let args = [steps.arg(), table.pages.arg(), k.arg(), v.arg(), pk, pks, pv, pvs, table.stride_arg()?];
    device.launch(name, grid([n, pool.kv_heads(), 2], 32)?, &args)
}

/// Index keys of one layer of one sequence, and what makes pooled ones of raw ones.
pub struct IndexKeys {
    /// `[capacity / 4, 128]`; complete blocks only are valid.
    pub pooled: Buffer<f32>,
    /// The key of incomplete tails, 128 values.
    pub dead: Buffer<f32>,
    /// Raw key of cell c at c modulo its cells.
    pub ring: Buffer<f32>,
    /// Gain of the norm, 128 values.
    pub gain: Buffer<f32>,
    pub eps: f32,
    /// Tables `[positions, 32]`.
    pub cos: Buffer<f32>,
    pub sin: Buffer<f32>,
}

/// Takes the raw keys `[n, 128]` of `n` new cells at consecutive positions (`steps[4 i]`): stores them in the ring, makes
/// the pooled key of every block they complete, and the tails' key with cell 0.
///
/// # Errors
/// More cells than the ring has room for (its cells less 4), buffers that are too small, or a driver's error.
pub fn append_index_keys(device: &Device, keys: &mut IndexKeys, steps: &Buffer<i32>, raw: &Buffer<f32>, n: usize) -> Result<()> {
    let name = "index_key_append";
    let ring = keys.ring.len() / INDEX_DIM;
    if n + 4 > ring || i32::try_from(ring).is_err() {
        return Err(refuse(name, format!("at most {} cells for a ring of {ring}", ring.saturating_sub(4)), n));
    }
    need(name, "raw keys", raw.len(), n * INDEX_DIM)?;
    need(name, "step records", steps.len(), 4 * n)?;
    need(name, "gain", keys.gain.len(), INDEX_DIM)?;
    need(name, "dead key", keys.dead.len(), INDEX_DIM)?;
    let args = [
        steps.arg(),
        raw.arg(),
        keys.gain.arg(),
        keys.cos.arg(),
        keys.sin.arg(),
        keys.ring.arg(),
        keys.pooled.arg(),
        keys.dead.arg(),
        Arg::F32(keys.eps),
        Arg::I32(ring as i32),
    ];
    device.launch(name, grid([n, 1, 1], 32)?, &args)
}
