//! `attn_decode`: chunk kernels and merge of decode attention over the published shapes.

use super::{Timer, read_time, rotations};
use crate::attention::{DecodeScratch, KvPool, PageTable, Selection, chunk_kernels, launch_chunks, launch_merge};
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::parity::attn_data::{HostPool, permutation};
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::kv::KvKind;
use strata_ops::qsa::{BLOCK, CHUNK, HEAD_DIM};

pub(crate) const HEADS: usize = 24;
const KV_HEADS: usize = 2;
/// Queries and width of the published rows.
const SHAPES: [(usize, usize); 4] = [(1, 2_051), (4, 2_051), (1, 32_768), (4, 32_768)];

/// A pool whose rows repeat those of a small random one, and page tables: table i leads the same cell ids to other pages,
/// so that calls which rotate among them read other memory.
pub(crate) struct Data {
    pub pool: KvPool,
    pub q: Buffer<f32>,
    pub ids: Buffer<i32>,
    pub steps: Buffer<i32>,
    pub tables: Vec<Buffer<i32>>,
    out: Buffer<f32>,
}

impl Data {
    pub(crate) fn new(device: &Device, kind: KvKind, queries: usize, width: usize) -> Result<Data> {
        let mut rng = Rng::new(77);
        let few = if device.is_shim() { 64 } else { 4_096 };
        let host = HostPool::random(&mut rng, kind, KV_HEADS, few, 0..0);
        let cells = queries * width.next_multiple_of(BLOCK);
        let sets = rotations(device, cells * kind.bytes_per_cell(KV_HEADS));
        let table_pages = cells / BLOCK;
        let pages = (table_pages * sets).next_multiple_of(few / BLOCK);
        let mut pool = KvPool::new(device, kind, KV_HEADS, pages)?;
        let times = pages / (few / BLOCK);
        for (side, rows) in [&host.k, &host.v].into_iter().enumerate() {
            let (codes, scales) = rows.parts();
            pool.codes[side].write(&codes.repeat(times))?;
            pool.scales[side].write(&scales.repeat(times))?;
        }
        // query i attends to its own blocks, in ascending order
        let ids: Vec<i32> = (0..queries).flat_map(|i| (0..width).map(move |c| (i * width.next_multiple_of(BLOCK) + c) as i32)).collect();
        let w = width as i32;
        let order = permutation(&mut rng, pages);
        Ok(Data {
            pool,
            q: device.upload(&rng.normals(queries * HEADS * HEAD_DIM, 0.3))?,
            ids: device.upload(&ids)?,
            steps: device.upload(&[w - 1, w, w / 4, w].repeat(queries))?,
            tables: order.chunks_exact(table_pages).take(sets).map(|t| device.upload(t)).collect::<Result<_>>()?,
            out: device.alloc(queries * HEADS * HEAD_DIM)?,
        })
    }
}

/// Medians of every chunk kernel, the merge, and both in a row, for a format and shape.
fn row(device: &Device, kind: KvKind, queries: usize, width: usize, line: &mut dyn FnMut(String)) -> Result<()> {
    let timer = Timer::default();
    let mut data = Data::new(device, kind, queries, width)?;
    let mut scratch = DecodeScratch::new(device, queries, HEADS, width)?;
    let bytes = queries * width * kind.bytes_per_cell(KV_HEADS);
    let partials = queries * HEADS * width.div_ceil(CHUNK) * (HEAD_DIM + 2) * 4;
    let read = read_time(device, bytes, timer)?;
    line(format!(
        "{} n_q {queries} width {width}: {bytes} bytes of rows (read alone {:.2} us), {partials} of partials",
        kind.name(),
        read.median
    ));
    let mut kernels = chunk_kernels(device, kind);
    if kind == KvKind::Int8 {
        kernels.push("attn_chunk_int8_f32");
    }
    let select = |i: usize| Selection {
        ids: &data.ids,
        steps: &data.steps,
        table: PageTable { pages: &data.tables[i % data.tables.len()], stride: 0 },
        queries,
        cap: width,
    };
    for kernel in &kernels {
        let t = timer.time(device, &mut |i| launch_chunks(device, kernel, &data.pool, &data.q, HEADS, &select(i), &mut scratch))?;
        line(format!("  {kernel:24} {t}  {:.0}% of the read", 100.0 * read.median / t.median));
    }
    let t = timer.time(device, &mut |i| launch_merge(device, &data.pool, HEADS, &select(i), &scratch, &mut data.out))?;
    line(format!("  {:24} {t}", "merge"));
    let t = timer.time(device, &mut |i| {
        launch_chunks(device, kernels[0], &data.pool, &data.q, HEADS, &select(i), &mut scratch)?;
        launch_merge(device, &data.pool, HEADS, &select(i), &scratch, &mut data.out)
    })?;
    line(format!("  {:24} {t}", "default chunk and merge"));
    Ok(())
}

/// Decode attention of the four formats at the published shapes, or at `n_q width`.
pub(super) fn attn_decode_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let shapes = match numbers {
        [queries, width, ..] => vec![((*queries).max(1), (*width).max(1))],
        _ if device.is_shim() => vec![(1, 130)],
        _ => SHAPES.to_vec(),
    };
    for kind in [KvKind::Int8, KvKind::F16, KvKind::Q4_0, KvKind::K8V4] {
        for (queries, width) in &shapes {
            row(device, kind, *queries, *width, line)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bench_runs_on_the_shim() {
        let Some(device) = crate::testing::tools(Device::open("shim-gfx12")) else { return };
        let mut lines = Vec::new();
        attn_decode_bench(&device, &[], &mut |l| lines.push(l)).unwrap();
        // a heading, the chunk kernels, merge and both
        assert_eq!(lines.len(), 4 * 3 + 3 + 2 + 2 + 2);
    }
}
