//! `attend` gives one answer whichever path takes a call: prompt kernels, or chunks and their merge.

use super::*;
use crate::device::{Buffer, Device};
use crate::parity::attn_data::{HostPool, selection};
use crate::parity::differing;
use crate::shim::ShimSide;
use crate::testing::tools;
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::HEAD_DIM;
use strata_ops::qsa::kv::KvKind;

const KINDS: [KvKind; 4] = [KvKind::F16, KvKind::Int8, KvKind::Q4_0, KvKind::K8V4];
const KV_HEADS: usize = 2;
const CELLS: usize = 640;
const CAP: usize = 192;
/// (heads of a KV head, widths of the queries): one query and several, of chunks that are whole, cut, empty, or beyond the cap.
const CALLS: [(usize, &[usize]); 4] = [(12, &[190]), (12, &[64, 0, 1, 131, 250]), (4, &[65]), (3, &[128, 63])];

/// A call of `attend` and its inputs on the device.
struct Call {
    pool: KvPool,
    /// A table of each query's own.
    pages: Buffer<i32>,
    stride: usize,
    q: Buffer<f32>,
    ids: Buffer<i32>,
    steps: Buffer<i32>,
    heads: usize,
    queries: usize,
}

impl Call {
    fn new(device: &Device, kind: KvKind, number: usize) -> Call {
        let (group, widths) = CALLS[number];
        let (heads, queries, hole) = (group * KV_HEADS, widths.len(), 256..320);
        let mut rng = Rng::new(0x6174_746e + 16 * kind as u64 + number as u64);
        let host = HostPool::random(&mut rng, kind, KV_HEADS, CELLS, hole.clone());
        let (mut pages, mut ids, mut steps) = (Vec::new(), vec![i32::MAX; queries * CAP], Vec::new());
        for (i, width) in widths.iter().enumerate() {
            let mut own = host.table.clone();
            own.rotate_left(7 * i);
            pages.extend(own);
            let chosen = selection(&mut rng, number + i, (*width).min(CAP), CELLS, &hole);
            ids[i * CAP..][..chosen.len()].copy_from_slice(&chosen);
            steps.extend([*width as i32 - 1, *width as i32, *width as i32 / 4, *width as i32]);
        }
        let q = rng.normals(queries * heads * HEAD_DIM, 0.3);
        Call {
            pool: host.upload(device).unwrap(),
            pages: device.upload(&pages).unwrap(),
            stride: host.table.len(),
            q: device.upload(&q).unwrap(),
            ids: device.upload(&ids).unwrap(),
            steps: device.upload(&steps).unwrap(),
            heads,
            queries,
        }
    }

    /// The answer by prompt kernels or by chunks, over bytes of `poison`.
    fn run(&self, device: &Device, prompt: bool, poison: u8) -> Vec<f32> {
        let mut table = AttentionTable::BASE;
        table.prompt_min = if prompt { 0 } else { usize::MAX };
        let taken = table.prompt_on(&device.info().arch, self.pool.kind(), self.heads / KV_HEADS, self.queries);
        assert_eq!(taken.is_some(), prompt, "the path is not the one that is asked for");
        let table_of_pages = PageTable { pages: &self.pages, stride: self.stride };
        let (ids, steps) = (&self.ids, &self.steps);
        let chosen = Selection { ids, steps, table: table_of_pages, queries: self.queries, cap: CAP };
        let mut scratch = DecodeScratch::new(device, self.queries, self.heads, CAP).unwrap();
        let mut out = device.alloc::<f32>(self.queries * self.heads * HEAD_DIM).unwrap();
        out.fill(poison).unwrap();
        attend(device, &table, &self.pool, &self.q, self.heads, &chosen, &mut scratch, &mut out).unwrap();
        out.read().unwrap()
    }
}

#[test]
fn prompt_and_chunks_give_the_same_bits_on_every_side() {
    for side in ShimSide::ALL {
        let Some(device) = tools(Device::open(side.arch())) else { return };
        for kind in KINDS {
            for (number, what) in CALLS.iter().enumerate() {
                let call = Call::new(&device, kind, number);
                let (prompt, chunks) = (call.run(&device, true, 0x5a), call.run(&device, false, 0xa5));
                let what = format!("{} {} {what:?}", side.arch(), kind.name());
                assert_eq!(differing(&prompt, &chunks), 0, "{what}");
                // answers of zeros or NaN would agree by accident
                assert!(prompt.iter().all(|v| v.is_finite()) && prompt.iter().filter(|v| **v != 0.0).count() > HEAD_DIM, "{what}");
            }
        }
    }
}

/// A merge that rounds the other product, on one path alone.
#[test]
fn a_path_that_rounds_otherwise_is_seen() {
    let Some(device) = tools(Device::open(ShimSide::Cuda.arch())) else { return };
    let (prompt_broken, merge_broken) = (device.with_defines(&["STRATA_BROKEN_PROMPT"]), device.with_defines(&["STRATA_BROKEN_MERGE"]));
    for kind in KINDS {
        let call = Call::new(&device, kind, 0);
        let (prompt, chunks) = (call.run(&device, true, 0x5a), call.run(&device, false, 0xa5));
        assert!(differing(&call.run(&prompt_broken, true, 0x5a), &chunks) > 100, "{}", kind.name());
        assert!(differing(&prompt, &call.run(&merge_broken, false, 0xa5)) > 100, "{}", kind.name());
    }
}
