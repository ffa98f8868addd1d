//! `prompt_attn_parity`: prompt attention against the definition.

use super::attn_data::{HostPool, selection};
use super::differing;
use super::prompt_data::{CAP, HEADS, KV_HEADS, PromptData, SHAPES};
use super::qsa_merge::KINDS;
use crate::attention::{PageTable, Selection, attend_prompt, inexact_prompt_kernel, launch_prompt, prompt_kernel};
use crate::device::{Buffer, Device};
use crate::error::Result;
use strata_cpu::parity::rng::Rng;
use strata_cpu::parity::{CaseReport, attention_f64};
use strata_cpu::pool::Pool;
use strata_cpu::qsa::{QsaKernels, attend_given};
use strata_ops::qsa::HEAD_DIM;
use strata_ops::qsa::attend::attend_head;
use strata_ops::qsa::hadamard::hadamard_in_place;
use strata_ops::qsa::kv::{KvKind, KvRows, Rows};

const SUITE: &str = "prompt_attn_parity";
/// (heads of a KV head, widths of the queries) of the cases over a pool with holes.
const EDGES: [(usize, &[usize]); 7] =
    [(12, &[0, 1, 63]), (12, &[64, 65]), (12, &[190]), (2, &[130]), (3, &[64, 5]), (4, &[70]), (16, &[129])];

/// Prompt attention of the four KV formats: widths about the chunk edges and other group sizes over a pool with absent pages,
/// against the definition; then the published shapes (`full`; else a small one) against the CPU's kernels, which are the
/// definition's bits. A case of those carries the FNV-1a checksum of its output. `max_err64` is against FP64 attention; an
/// error beyond four times that of plain f32 attention and 1e-6 of the output's scale, or a distance from it of more than
/// 1e-4, counts as a difference. Formats without a kernel on the device are left out.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn prompt_attn_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    for (i, kind) in KINDS.into_iter().enumerate() {
        if prompt_kernel(device, kind, 12).is_none() {
            continue;
        }
        edges(device, kind, i, report)?;
        let shapes: &[(usize, usize)] = if full { &SHAPES } else { &[(300, 3)] };
        for (ctx, nq) in shapes {
            published(device, kind, *ctx, *nq, report)?;
        }
    }
    Ok(())
}

fn edges(device: &Device, kind: KvKind, number: usize, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let (cells, hole, cap) = (640, 256..384, 192);
    let mut rng = Rng::new(0x7072_6f6d + number as u64);
    let host = HostPool::random(&mut rng, kind, KV_HEADS, cells, hole.clone());
    let (pool, table) = (host.upload(device)?, device.upload(&host.table)?);
    for (n, (group, widths)) in EDGES.into_iter().enumerate() {
        let (heads, queries) = (group * KV_HEADS, widths.len());
        let (mut ids, mut steps) = (vec![i32::MAX; queries * cap], Vec::new());
        for (i, width) in widths.iter().enumerate() {
            let chosen = selection(&mut rng, n + i, *width, cells, &hole);
            ids[i * cap..][..chosen.len()].copy_from_slice(&chosen);
            steps.extend([*width as i32 - 1, *width as i32, *width as i32 / 4, *width as i32]);
        }
        let q = rng.normals(queries * heads * HEAD_DIM, 0.3);
        let lists: Vec<&[i32]> = (0..queries).map(|i| &ids[i * cap..][..widths[i]]).collect();
        let want = host.reference(&q, heads, &lists);
        let (ids, steps) = (device.upload(&ids)?, device.upload(&steps)?);
        let chosen = Selection { ids: &ids, steps: &steps, table: PageTable { pages: &table, stride: 0 }, queries, cap };
        let mut out = poisoned(device, want.len())?;
        attend_prompt(device, &pool, &device.upload(&q)?, heads, &chosen, &mut out)?;
        report(CaseReport {
            suite: SUITE,
            case: format!("{} group {group} widths {widths:?}", kind.name()),
            compared: want.len() as u64,
            differing: differing(&out.read()?, &want),
            max_err64: None,
        });
    }
    Ok(())
}

fn published(device: &Device, kind: KvKind, ctx: usize, nq: usize, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let data = PromptData::new(kind, ctx, nq);
    let pool = data.paged().upload(device)?;
    let (table, ids, steps) = (device.upload(&data.table)?, device.upload(&data.ids)?, device.upload(&data.steps)?);
    let chosen = Selection { ids: &ids, steps: &steps, table: PageTable { pages: &table, stride: 0 }, queries: nq, cap: CAP };
    let mut out = poisoned(device, data.q.len())?;
    attend_prompt(device, &pool, &device.upload(&data.q)?, HEADS, &chosen, &mut out)?;
    let got = out.read()?;

    let lists: Vec<&[i32]> = (0..nq).map(|i| data.cells(i)).collect();
    let mut want = vec![f32::from_bits(0x7fc0_1111); data.q.len()];
    let threads = Pool::new(std::thread::available_parallelism().map_or(1, |n| n.get()));
    attend_given(&threads, &QsaKernels::best(), &data.rows(), HEADS, &data.q, &lists, &mut want).expect("a supported shape");
    let (err64, failed) = gate(&data, &got);
    report(CaseReport {
        suite: SUITE,
        case: format!("{} ctx {ctx} nq {nq}, fnv1a {:016x}", kind.name(), fnv1a(&got)),
        compared: want.len() as u64,
        differing: differing(&got, &want) + failed,
        max_err64: Some(err64),
    });
    if let Some(kernel) = inexact_prompt_kernel(device, kind, HEADS / KV_HEADS) {
        out.fill(0xa5)?;
        launch_prompt(device, kernel, &pool, &device.upload(&data.q)?, HEADS, &chosen, &mut out)?;
        let (err64, failed) = gate(&data, &out.read()?);
        let case = format!("{kernel} (not exact: heads through the FP64 gate) ctx {ctx} nq {nq}");
        report(CaseReport { suite: SUITE, case, compared: heads_checked(&data), differing: failed, max_err64: Some(err64) });
    }
    Ok(())
}

fn poisoned(device: &Device, n: usize) -> Result<Buffer<f32>> {
    let mut out = device.alloc(n)?;
    out.fill(0x5a)?;
    Ok(out)
}

/// Heads that [`gate`] looks at.
fn heads_checked(data: &PromptData) -> u64 {
    2 * data.queries().div_ceil((data.queries() / 16).max(1)) as u64
}

/// Largest error of every (nq/16)-th query's first and last head against FP64 as a share of the output's scale, and how many
/// of these heads fail the gate.
pub(crate) fn gate(data: &PromptData, got: &[f32]) -> (f64, u64) {
    let (mut worst, mut failed) = (0.0f64, 0);
    for i in (0..data.queries()).step_by((data.queries() / 16).max(1)) {
        for h in [0, HEADS - 1] {
            let at = (i * HEADS + h) * HEAD_DIM;
            let q: &[f32; HEAD_DIM] = data.q[at..].first_chunk().expect("a head has 256 values");
            let got = &got[at..at + HEAD_DIM];
            let kv_head = h / (HEADS / KV_HEADS);
            let rows: Vec<usize> = data.cells(i).iter().map(|c| strata_ops::qsa::row_of(*c as usize, kv_head, KV_HEADS)).collect();
            let exact = attention_f64(&data.rows(), q, &rows);
            let plain = plain_f32(&data.rows(), q, &rows);
            let scale = exact.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
            let far = |x: &[f32]| x.iter().zip(&exact).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / scale;
            let apart = got.iter().zip(&plain).fold(0.0f64, |m, (a, b)| m.max(f64::from((a - b).abs()))) / scale;
            let err = far(got);
            worst = worst.max(err);
            failed += u64::from(err > (4.0 * far(&plain)).max(1e-6) || apart > 1e-4 || err.is_nan());
        }
    }
    (worst, failed)
}

/// Attention in the f32 order over what the rows decode to: the baseline of the gate.
fn plain_f32(kv: &KvRows<'_>, q: &[f32; HEAD_DIM], rows: &[usize]) -> [f32; HEAD_DIM] {
    let decode = |side: &Rows<'_>| -> Vec<f32> {
        let one = |row: &usize| {
            let mut x = [0.0f32; HEAD_DIM];
            side.decode(*row, &mut x);
            if let Rows::Q4_0(_) = side {
                hadamard_in_place(&mut x);
            }
            x
        };
        rows.iter().flat_map(one).collect()
    };
    let (mut k, mut v) = (decode(&kv.k), decode(&kv.v));
    // whole blocks of four cells
    k.resize(rows.len().next_multiple_of(4) * HEAD_DIM, 0.0);
    v.resize(k.len(), 0.0);
    let cells: Vec<i32> = (0..rows.len() as i32).collect();
    let mut out = [0.0f32; HEAD_DIM];
    attend_head(&KvRows { k: Rows::F32(&k), v: Rows::F32(&v), kv_heads: 1 }, 0, q, &cells, &mut out);
    out
}

/// FNV-1a of 64 bits over the little-endian bytes.
fn fnv1a(x: &[f32]) -> u64 {
    let bytes = x.iter().flat_map(|v| v.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tools;

    fn totals(device: &Device) -> ([u64; 3], f64) {
        let (mut t, mut worst) = ([0; 3], 0.0f64);
        prompt_attn_parity(device, false, &mut |c| {
            println!("{c:?}");
            t = [t[0] + 1, t[1] + c.compared, t[2] + c.differing];
            worst = worst.max(c.max_err64.unwrap_or(0.0));
        })
        .unwrap();
        (t, worst)
    }

    fn agrees(backend: &str, cases: u64) {
        let Some(device) = tools(Device::open(backend)) else { return };
        let (t, worst) = totals(&device);
        assert_eq!((t[0], t[2]), (cases, 0));
        assert!(t[1] > 200_000 && worst < 4e-6, "{t:?} {worst:e}");
    }

    #[test]
    fn prompt_agrees_on_the_cuda_side() {
        agrees("shim-cuda", 4 * 8 + 1);
    }

    #[test]
    fn prompt_agrees_on_gfx12() {
        agrees("shim-gfx12", 4 * 8);
    }

    #[test]
    fn prompt_agrees_on_gfx11() {
        agrees("shim-gfx11", 4 * 8);
    }

    /// A merge that rounds the other product.
    #[test]
    fn a_broken_prompt_kernel_is_seen() {
        let Some(device) = tools(Device::open("shim-cuda")) else { return };
        let (t, _) = totals(&device.with_defines(&["STRATA_BROKEN_PROMPT"]));
        assert!(t[2] > 1_000, "{t:?}");
    }
}
