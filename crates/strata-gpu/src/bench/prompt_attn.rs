//! `prompt_attn`: prompt attention of the published shapes.

use super::{Limits, Timer, Timing};
use crate::attention::{PageTable, Selection, inexact_prompt_kernel, launch_prompt, prompt_kernel};
use crate::device::Device;
use crate::error::Result;
use crate::parity::prompt_data::{CAP, HEADS, KV_HEADS, PromptData, SHAPES};
use strata_ops::qsa::HEAD_DIM;
use strata_ops::qsa::kv::{KvKind, RowKind};

/// Times prompt attention: `numbers` are context, queries and samples of one shape, else the published three. Stated for each:
/// the bytes of rows that the workgroups gather and their rate, and the arithmetic that the format needs with its share of the
/// card's measured peak: int8 multiply-adds of three digits for each of the heads, or f32 FMAs.
pub(super) fn prompt_attn_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let one = numbers.first().map(|ctx| (*ctx, numbers.get(1).copied().unwrap_or(256).min(*ctx)));
    let timer = Timer { calls: 4, samples: numbers.get(2).copied().unwrap_or(11) };
    let limits = Limits::measure(device)?;
    for (ctx, nq) in one.map_or(SHAPES.to_vec(), |s| vec![s]) {
        for kind in [KvKind::Int8, KvKind::K8V4, KvKind::F16, KvKind::Q4_0] {
            let Some(kernel) = prompt_kernel(device, kind, HEADS / KV_HEADS) else { continue };
            let data = PromptData::new(kind, ctx, nq);
            let pool = data.paged().upload(device)?;
            let (table, ids, steps) = (device.upload(&data.table)?, device.upload(&data.ids)?, device.upload(&data.steps)?);
            let chosen = Selection { ids: &ids, steps: &steps, table: PageTable { pages: &table, stride: 0 }, queries: nq, cap: CAP };
            let q = device.upload(&data.q)?;
            let mut out = device.alloc::<f32>(data.q.len())?;
            let cells: usize = (0..nq).map(|i| data.cells(i).len()).sum();
            let bytes = (cells * kind.bytes_per_cell(KV_HEADS)) as f64;
            let macs = (cells * HEADS * HEAD_DIM) as f64;
            let mut row = |name: &str, t: Timing, least: f64| {
                let seconds = t.median * 1e-6;
                let (gathered, rate) = (bytes / 1e6, bytes / seconds / 1e9);
                let (peak, share) = (least * 1e6, 100.0 * least / seconds);
                line(format!(
                    "{ctx:>6} x {nq:<5} {name:<16} {t}  gathers {gathered:>6.0} MB, {rate:>5.0} GB/s; arithmetic at peak {peak:>8.2} us, share {share:>4.1}%"
                ));
            };
            // a side of int8 rows takes three int8 products a value, one of float rows one FMA
            let side = |kind| if kind == RowKind::Int8 { macs * 3.0 / limits.matrix_s8.max(1.0) } else { macs / limits.fma };
            let t = timer.time(device, &mut |_| launch_prompt(device, kernel, &pool, &q, HEADS, &chosen, &mut out))?;
            row(kernel, t, side(kind.keys()) + side(kind.values()));
            if let Some(kernel) = inexact_prompt_kernel(device, kind, HEADS / KV_HEADS) {
                let t = timer.time(device, &mut |_| launch_prompt(device, kernel, &pool, &q, HEADS, &chosen, &mut out))?;
                row(kernel, t, 4.0 * macs / limits.matrix_f16.max(1.0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_shape_is_timed() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let mut rows = Vec::new();
        prompt_attn_bench(&device, &[130, 1, 1], &mut |l| rows.push(l)).unwrap();
        assert!(rows.len() == 5 && rows[0].contains("prompt_int8_g12"), "{rows:?}");
    }
}
