//! `qsa_matrix_gate`: the matrix scorers, which are not exact, against FP64.

use super::qsa_scores::records;
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::selection::scores::{INDEX_HEADS, QUERY_DIM, Scorer, Scoring, score_with};
use std::sync::Mutex;
use strata_cpu::parity::CaseReport;
use strata_cpu::parity::rng::Rng;
use strata_cpu::pool::Pool;
use strata_ops::qsa::{BLOCK, INDEX_DIM};

/// Keys and queries as a trained indexer has them: a direction that all share, and noise.
pub(crate) struct SelectInputs {
    pub pooled: Vec<f32>,
    pub dead: Vec<f32>,
    pub q: Vec<f32>,
}

/// keys = a * direction / 2 + normal with a normal `a` for each block, queries = direction / 5 + normal / 10.
pub(crate) fn select_inputs(ctx: usize, queries: usize, seed: u64) -> SelectInputs {
    let mut rng = Rng::new(seed);
    let direction = rng.normals(INDEX_DIM, 1.0);
    let mut key = |blocks: usize| -> Vec<f32> {
        let mut v = Vec::with_capacity(blocks * INDEX_DIM);
        for _ in 0..blocks {
            let a = 0.5 * rng.normal();
            v.extend(direction.iter().map(|d| a * d + rng.normal()));
        }
        v
    };
    let (pooled, dead) = (key(ctx / BLOCK), key(1));
    let q = (0..queries * QUERY_DIM).map(|i| 0.2 * direction[i % INDEX_DIM] + 0.1 * rng.normal()).collect();
    SelectInputs { pooled, dead, q }
}

/// Largest error of exact and matrix scores of complete blocks, as shares of the largest score, and the scores that miss the gate.
pub(crate) struct Gate {
    pub exact: f64,
    pub matrix: f64,
    pub compared: u64,
    /// Beyond max(4 x the exact kernel's error, 1e-6 of the largest score), or last blocks with other bits.
    pub missed: u64,
}

/// Judges a matrix scorer's rows by FP64; rows have `stride` entries.
pub(crate) fn gate(inputs: &SelectInputs, n_kv: &[usize], stride: usize, exact: &[f32], matrix: &[f32]) -> Gate {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let rows: Vec<_> = n_kv.iter().map(|_| Mutex::new((0.0f64, 0.0f64, Vec::new()))).collect();
    Pool::new(threads).run(n_kv.len(), &|i, _| {
        let mut row = rows[i].lock().unwrap_or_else(|e| e.into_inner());
        let q = &inputs.q[i * QUERY_DIM..(i + 1) * QUERY_DIM];
        let blocks = n_kv[i] / BLOCK;
        for (b, key) in inputs.pooled.as_chunks::<INDEX_DIM>().0[..blocks].iter().enumerate() {
            let want = score64(key, q);
            row.0 = row.0.max(want);
            row.1 = row.1.max((f64::from(exact[i * stride + b]) - want).abs());
            row.2.push((f64::from(matrix[i * stride + b]) - want).abs());
        }
        // the last block is an exact kernel's; a difference there misses any gate
        if matrix[i * stride + blocks].to_bits() != exact[i * stride + blocks].to_bits() {
            row.2.push(f64::INFINITY);
        }
    });
    let rows: Vec<_> = rows.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner())).collect();
    let scale = rows.iter().map(|r| r.0).fold(f64::MIN_POSITIVE, f64::max);
    let exact = rows.iter().map(|r| r.1).fold(0.0, f64::max) / scale;
    let limit = scale * (4.0 * exact).max(1e-6);
    let errors = || rows.iter().flat_map(|r| &r.2);
    Gate {
        exact,
        matrix: errors().fold(0.0, |a: f64, b| a.max(*b)) / scale,
        compared: n_kv.iter().map(|n| (n / BLOCK + 1) as u64).sum(),
        missed: errors().filter(|e| !(**e <= limit)).count() as u64,
    }
}

fn score64(key: &[f32; INDEX_DIM], q: &[f32]) -> f64 {
    let dot = |q: &[f32; INDEX_DIM]| key.iter().zip(q).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum::<f64>();
    q.as_chunks::<INDEX_DIM>().0[..INDEX_HEADS].iter().map(|q| dot(q).max(0.0)).sum()
}

/// Both matrix scorers where the device has them: a case fails if a score is further from FP64 than the gate allows. A report's
/// error is the matrix scorer's.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn qsa_matrix_gate(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let cases: &[(usize, usize)] =
        if full { &[(1_111, 64), (8_195, 200), (32_768, 256), (131_072, 256), (262_144, 256)] } else { &[(1_111, 17)] };
    for &(ctx, queries) in cases {
        let inputs = select_inputs(ctx, queries, ctx as u64);
        let n_kv: Vec<usize> = (0..queries).map(|i| ctx - queries + i + 1).collect();
        let max_blocks = ctx / BLOCK + 2;
        let (pooled, dead, q) = (device.upload(&inputs.pooled)?, device.upload(&inputs.dead)?, device.upload(&inputs.q)?);
        let records = device.upload(&records(n_kv.iter().copied()))?;
        let run = |scorer: Scorer| -> Result<Vec<f32>> {
            let mut scores: Buffer<f32> = device.alloc(queries * max_blocks)?;
            scores.fill(0x7f)?;
            let (pooled, dead, q, records) = (&pooled, &dead, &q, &records);
            let active_blocks = Some(ctx / BLOCK + 1);
            score_with(device, scorer, &Scoring { pooled, dead, q, records, scores: &scores, max_blocks, queries, active_blocks })?;
            scores.read()
        };
        let exact = run(Scorer::Warp)?;
        for scorer in [Scorer::Bf16, Scorer::Tf32].into_iter().filter(|s| s.takes(device, queries)) {
            let g = gate(&inputs, &n_kv, max_blocks, &exact, &run(scorer)?);
            let case = format!("ctx {ctx} nq {queries} {scorer:?} (exact kernel {:.2e})", g.exact);
            report(CaseReport { suite: "qsa_matrix_gate", case, compared: g.compared, differing: g.missed, max_err64: Some(g.matrix) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::ShimSide;

    #[test]
    fn matrix_scorers_pass_the_gate_and_broken_ones_do_not() {
        for side in ShimSide::ALL {
            let Some(device) = crate::testing::tools(Device::open(side.arch())) else { return };
            let mut cases = 0;
            qsa_matrix_gate(&device, false, &mut |c| {
                cases += 1;
                assert!(c.differing == 0 && c.max_err64.unwrap_or(1.0) < 1e-6, "{} on {}: {:?}", c.case, side.arch(), c.max_err64);
            })
            .unwrap();
            assert_eq!(cases, if side == ShimSide::Cuda { 2 } else { 1 });
        }
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        qsa_matrix_gate(&device.with_defines(&["STRATA_BROKEN"]), false, &mut |c| assert!(c.differing > 1_000, "{}", c.case)).unwrap();
    }
}
