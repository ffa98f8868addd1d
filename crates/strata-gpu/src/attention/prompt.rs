//! Prompt attention: one workgroup a query and KV head, chunks merged in registers.

use super::decode::Selection;
use super::pool::KvPool;
use super::{grid, need, refuse};
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::{GpuError, Result};
use crate::registry;
use strata_ops::qsa::kv::KvKind;
use strata_ops::qsa::{BLOCK, CHUNK, HEAD_DIM};

/// Query heads of one KV head at most.
pub const PROMPT_MAX_GROUP: usize = 16;

/// The exact kernel of a format for `group` query heads a KV head, or `None` where the device has none: formats with int8 keys
/// need matrix instructions, devices without run [`attend_decode`](super::attend_decode), whose bits are the same.
pub fn prompt_kernel(device: &Device, kind: KvKind, group: usize) -> Option<&'static str> {
    prompt_kernel_on(&device.info().arch, kind, group)
}

/// The same for an architecture.
pub fn prompt_kernel_on(arch: &str, kind: KvKind, group: usize) -> Option<&'static str> {
    let size = [8, 12, 16].iter().position(|g| group <= *g)?;
    let names = match kind {
        KvKind::F32 => return None,
        KvKind::F16 => ["prompt_f16_g8", "prompt_f16_g12", "prompt_f16_g16"],
        KvKind::Int8 => ["prompt_int8_g8", "prompt_int8_g12", "prompt_int8_g16"],
        KvKind::Q4_0 => ["prompt_q4_g8", "prompt_q4_g12", "prompt_q4_g16"],
        KvKind::K8V4 => ["prompt_k8v4_g8", "prompt_k8v4_g12", "prompt_k8v4_g16"],
    };
    Some(names[size]).filter(|k| registry::has(arch, k))
}

/// The kernel with queries and weights as pairs of halves, **not exact**: a yardstick for the exact one, and an opt-in. int8
/// caches, up to 12 heads a KV head, NVIDIA.
pub fn inexact_prompt_kernel(device: &Device, kind: KvKind, group: usize) -> Option<&'static str> {
    Some("prompt_half_g12").filter(|k| kind == KvKind::Int8 && group <= 12 && device.has(k))
}

/// Dynamic shared memory of a kernel: on NVIDIA the int8 kernels stage keys and values of a chunk, beyond what a kernel may
/// declare (`PromptShared` in `prompt_int8.cu`).
fn shared_bytes(device: &Device, kind: KvKind, heads: usize) -> usize {
    if kind != KvKind::Int8 || device.info().arch.contains("gfx") {
        return 0;
    }
    let (staged, part, weights, scales, rest) = (2 * 4 * 4096, 4 * heads * 68, heads * CHUNK, 4 * CHUNK, 16 * 3);
    staged + (part + weights + scales + rest) * size_of::<f32>()
}

/// Attention of `heads` heads a query over its selection: the bits of
/// [`attend_head_paged`](strata_ops::qsa::attend::attend_head_paged). `q` and `out` are `[queries, heads, 256]`.
///
/// # Errors
/// A format or group size without a kernel here, sizes that do not fit, or a driver's error.
pub fn attend_prompt(
    device: &Device,
    pool: &KvPool,
    q: &Buffer<f32>,
    heads: usize,
    selection: &Selection<'_>,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let kernel = prompt_kernel(device, pool.kind(), heads / pool.kv_heads()).ok_or_else(|| no_kernel("prompt attention", pool, heads))?;
    launch_prompt(device, kernel, pool, q, heads, selection, out)
}

fn no_kernel(name: &str, pool: &KvPool, heads: usize) -> GpuError {
    let expected = format!("1 to {PROMPT_MAX_GROUP} query heads for each KV head, of a format with this kernel on this device");
    refuse(name, expected, format!("{heads} heads, {} KV heads, {}", pool.kv_heads(), pool.kind().name()))
}

/// Runs [`prompt_kernel`] or [`inexact_prompt_kernel`] of the pool's format and group size.
///
/// # Errors
/// Another kernel, sizes that do not fit, or a driver's error.
pub fn launch_prompt(
    device: &Device,
    kernel: &str,
    pool: &KvPool,
    q: &Buffer<f32>,
    heads: usize,
    selection: &Selection<'_>,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let group = heads / pool.kv_heads();
    let kernels = [prompt_kernel(device, pool.kind(), group), inexact_prompt_kernel(device, pool.kind(), group)];
    if group == 0 || !heads.is_multiple_of(pool.kv_heads()) || !kernels.contains(&Some(kernel)) {
        return Err(no_kernel(kernel, pool, heads));
    }
    selection.check(kernel)?;
    need(kernel, "q", q.len(), selection.queries * heads * HEAD_DIM)?;
    need(kernel, "out", out.len(), selection.queries * heads * HEAD_DIM)?;
    // kernels reach rows by 32-bit byte offsets
    let rows = pool.pages() * pool.kv_heads() * BLOCK;
    let bytes = rows.saturating_mul(2 * HEAD_DIM);
    if bytes > u32::MAX as usize {
        return Err(refuse(kernel, "a pool of less than 4 GiB a side", bytes));
    }
    let [k, k_scale, v, v_scale] = pool.args();
    let args = [
        q.arg(),
        selection.ids.arg(),
        selection.steps.arg(),
        selection.table.pages.arg(),
        k,
        k_scale,
        v,
        v_scale,
        out.arg(),
        Arg::I32(selection.cap as i32),
        Arg::I32(group as i32),
        selection.table.stride_arg()?,
    ];
    // the heads that the kernel is made for
    let made = kernel.rsplit_once('g').and_then(|(_, n)| n.parse().ok()).unwrap_or(PROMPT_MAX_GROUP);
    let shared = shared_bytes(device, pool.kind(), made) as u32;
    device.launch(kernel, Grid { shared, ..grid([selection.queries, pool.kv_heads(), 1], 128)? }, &args)
}
