//! `qsa_merge_daily_parity`: decode attention against the definition, and every chunk kernel against the default one.

use super::attn_data::{HostPool, selection};
use super::differing;
use crate::attention::{DecodeScratch, KvPool, PageTable, Selection, chunk_kernels, launch_chunks, launch_merge};
use crate::device::{Buffer, Device};
use crate::error::Result;
use std::ops::Range;
use strata_cpu::parity::rng::Rng;
use strata_cpu::parity::{CaseReport, attention_f64};
use strata_ops::qsa::HEAD_DIM;
use strata_ops::qsa::kv::KvKind;

const SUITE: &str = "qsa_merge_daily_parity";
/// Formats that devices have.
pub(super) const KINDS: [KvKind; 4] = [KvKind::F16, KvKind::Int8, KvKind::Q4_0, KvKind::K8V4];
const KV_HEADS: usize = 2;
const CAPS: [usize; 2] = [2_112, 32_768];
const WIDTHS: [usize; 13] = [0, 1, 63, 64, 65, 1_023, 1_024, 1_025, 2_051, 4_096, 16_383, 16_385, 32_768];

/// Shape of a case; a width may exceed the cap, which then limits it.
struct Case {
    group: usize,
    cap: usize,
    widths: Vec<usize>,
    label: String,
}

/// Every case of one format.
fn cases(rng: &mut Rng, full: bool) -> Vec<Case> {
    let case = |group, cap, widths: Vec<usize>, label: &str| {
        let label = format!("group {group} cap {cap} n_q {} {label}", widths.len());
        Case { group, cap, widths, label }
    };
    let mut all = Vec::new();
    if !full {
        for (group, cap, widths) in [
            (12, 192, &[0][..]),
            (12, 192, &[1]),
            (12, 128, &[63]),
            (12, 128, &[64, 0]),
            (12, 192, &[65, 128, 190]),
            (3, 192, &[100]),
            (4, 128, &[128]),
            (2, 64, &[40, 400]),
            (12, 2_112, &[1_100]),
        ] {
            all.push(case(group, cap, widths.to_vec(), &format!("widths {widths:?}")));
        }
        return all;
    }
    for cap in CAPS {
        for queries in 1..=6 {
            for width in WIDTHS {
                all.push(case(12, cap, vec![width; queries], &format!("width {width}")));
            }
            for mix in 0..3 {
                let widths = (0..queries).map(|_| rng.below(cap + 1)).collect();
                all.push(case(12, cap, widths, &format!("mix {mix}")));
            }
        }
    }
    for group in [1, 2, 3, 4, 6, 11] {
        all.push(case(group, 2_112, vec![2_051, 65, 0], "widths 2051 65 0"));
    }
    all
}

/// Decode attention of the four KV formats: the 768 cases of the published suite (two caps, 1 to 6 queries, 13 widths and
/// 3 mixes) against the definition, as many again for the other chunk kernels against the default, and other group sizes.
/// Pages are permuted, some absent; scratch starts as NaN, outputs as different bytes. `max_err64` is against FP64 softmax
/// attention.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn qsa_merge_daily_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let (cells, hole) = if full { (40_960, 8_192..8_448) } else { (1_280, 512..576) };
    for (i, kind) in KINDS.into_iter().enumerate() {
        let mut rng = Rng::new(0x6d65_7267 + i as u64);
        let host = HostPool::random(&mut rng, kind, KV_HEADS, cells, hole.clone());
        let suite = Suite { device, pool: host.upload(device)?, table: device.upload(&host.table)?, host, hole: hole.clone() };
        for (n, case) in cases(&mut rng, full).into_iter().enumerate() {
            suite.run(&mut rng, n, &case, full, report)?;
        }
    }
    Ok(())
}

struct Suite<'a> {
    device: &'a Device,
    host: HostPool,
    pool: KvPool,
    table: Buffer<i32>,
    hole: Range<usize>,
}

impl Suite<'_> {
    fn run(&self, rng: &mut Rng, number: usize, case: &Case, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
        let (device, kind, heads, queries) = (self.device, self.host.kind, case.group * KV_HEADS, case.widths.len());
        let cells = self.host.table.len() * 4;
        let mut ids = vec![i32::MAX; queries * case.cap];
        let mut steps = Vec::new();
        for (i, width) in case.widths.iter().enumerate() {
            let chosen = selection(rng, number + i, (*width).min(case.cap), cells, &self.hole);
            ids[i * case.cap..][..chosen.len()].copy_from_slice(&chosen);
            steps.extend([*width as i32 - 1, *width as i32, *width as i32 / 4, *width as i32]);
        }
        let q = rng.normals(queries * heads * HEAD_DIM, 0.3);
        let lists: Vec<&[i32]> = (0..queries).map(|i| &ids[i * case.cap..][..case.widths[i].min(case.cap)]).collect();
        let want = self.host.reference(&q, heads, &lists);

        let (q_dev, ids_dev, steps_dev) = (device.upload(&q)?, device.upload(&ids)?, device.upload(&steps)?);
        let table = PageTable { pages: &self.table, stride: 0 };
        let chosen = Selection { ids: &ids_dev, steps: &steps_dev, table, queries, cap: case.cap };
        let mut scratch = DecodeScratch::new(device, queries, heads, case.cap)?;
        let mut arm = |kernel: &str, poison: u8| -> Result<Vec<f32>> {
            scratch.m.fill(0xff)?;
            scratch.l.fill(0xff)?;
            scratch.acc.fill(0xff)?;
            let mut out = device.alloc::<f32>(queries * heads * HEAD_DIM)?;
            out.fill(poison)?;
            launch_chunks(device, kernel, &self.pool, &q_dev, heads, &chosen, &mut scratch)?;
            launch_merge(device, &self.pool, heads, &chosen, &scratch, &mut out)?;
            out.read()
        };
        let kernels = chunk_kernels(device, kind);
        let got = arm(kernels[0], 0x5a)?;
        // an answer that is NaN or all zeros would agree by accident
        let live = |i: usize| !self.host.live_rows(0, lists[i]).is_empty();
        let silent = want.chunks(heads * HEAD_DIM).enumerate().filter(|(i, w)| live(*i) && w.iter().all(|v| *v == 0.0)).count();
        let odd = (want.iter().filter(|v| !v.is_finite()).count() + silent) as u64;
        let mut one = CaseReport {
            suite: SUITE,
            case: format!("{} {}", kind.name(), case.label),
            compared: want.len() as u64,
            differing: differing(&got, &want) + odd,
            max_err64: None,
        };
        if queries == 1 || !full {
            for h in [0, heads - 1] {
                let rows = self.host.live_rows(h / case.group, lists[0]);
                let exact = attention_f64(&self.host.rows(), &q[h * HEAD_DIM..][..HEAD_DIM], &rows);
                let scale = exact.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
                let worst = exact.iter().zip(&got[h * HEAD_DIM..]).fold(0.0f64, |m, (a, b)| m.max((a - f64::from(*b)).abs()));
                one.max_err64 = Some(one.max_err64.unwrap_or(0.0).max(worst / scale));
            }
        }
        report(one);
        let mut others = CaseReport {
            suite: SUITE,
            case: format!("{} {}, chunk kernels {}", kind.name(), case.label, kernels[1..].join(" ")),
            compared: 0,
            differing: 0,
            max_err64: None,
        };
        for (i, kernel) in kernels[1..].iter().enumerate() {
            others.compared += got.len() as u64;
            others.differing += differing(&arm(kernel, 0xa5 + i as u8)?, &got);
        }
        report(others);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tools;

    fn totals(device: &Device) -> ([u64; 3], f64) {
        let (mut t, mut worst) = ([0; 3], 0.0f64);
        qsa_merge_daily_parity(device, false, &mut |c| {
            if c.differing != 0 {
                println!("{c:?}");
            }
            t = [t[0] + 1, t[1] + c.compared, t[2] + c.differing];
            worst = worst.max(c.max_err64.unwrap_or(0.0));
        })
        .unwrap();
        (t, worst)
    }

    fn agrees(backend: &str) {
        let Some(device) = tools(Device::open(backend)) else { return };
        let (t, worst) = totals(&device);
        println!("{backend}: {t:?} {worst:e}");
        assert_eq!((t[0], t[2]), (4 * 9 * 2, 0));
        assert!(t[1] > 200_000 && worst < 1e-5, "{t:?} {worst:e}");
    }

    #[test]
    fn decode_agrees_on_the_cuda_side() {
        agrees("shim-cuda");
    }

    #[test]
    fn decode_agrees_on_gfx12() {
        agrees("shim-gfx12");
    }

    #[test]
    fn decode_agrees_on_gfx11() {
        agrees("shim-gfx11");
    }

    #[test]
    fn the_suite_is_as_large_as_published() {
        let per_format = cases(&mut Rng::new(1), true).len() * 2;
        assert!(per_format * KINDS.len() >= 1_536 + 40, "{per_format}");
    }

    /// A chunk kernel that sums weights in another tree, and a merge that rounds the other product.
    #[test]
    fn broken_kernels_are_seen() {
        let Some(device) = tools(Device::open("shim-cuda")) else { return };
        for broken in ["STRATA_BROKEN_TREE", "STRATA_BROKEN_MERGE"] {
            let (t, _) = totals(&device.with_defines(&[broken]));
            assert!(t[2] > 1_000, "{broken}: {t:?}");
        }
    }
}
