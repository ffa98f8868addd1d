//! `qsa_scores_parity` and `qsa_rows_parity`: every exact scorer against the definition.

use super::differing;
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::selection::score_table::ScoreTable;
use crate::selection::scores::{MULTI_QUERIES, QUERY_DIM, Scorer, Scoring, score_slots, score_with};
use strata_cpu::parity::{CaseReport, ScoreCase, ScoreInputs, reference_scores, score_cases};
use strata_ops::qsa::BLOCK;

/// Queries of a case that run where there is no card.
const FEW: usize = 5;

/// Step records of queries whose sequences have `n_kv` cells.
pub(crate) fn records(n_kv: impl Iterator<Item = usize>) -> Vec<i32> {
    n_kv.flat_map(|n| [n as i32 - 1, n as i32, (n / BLOCK) as i32, n.min(2_051) as i32]).collect()
}

/// A case on a device.
struct Loaded {
    pooled: Buffer<f32>,
    dead: Buffer<f32>,
    q: Buffer<f32>,
    records: Buffer<i32>,
    scores: Buffer<f32>,
    n_kv: Vec<usize>,
    max_blocks: usize,
    /// The definition's scores; entries that it does not write hold other bits than the device's.
    want: Vec<f32>,
}

impl Loaded {
    fn new(device: &Device, inputs: &ScoreInputs, n_kv: Vec<usize>, max_blocks: usize) -> Result<Loaded> {
        let mut want = vec![f32::from_bits(0x7fc0_1111); n_kv.len() * max_blocks];
        reference_scores(inputs, &|i| n_kv[i], max_blocks, &mut want);
        Ok(Loaded {
            pooled: device.upload(&inputs.pooled)?,
            dead: device.upload(&inputs.dead)?,
            q: device.upload(&inputs.q)?,
            records: device.upload(&records(n_kv.iter().copied()))?,
            scores: device.alloc(want.len())?,
            n_kv,
            max_blocks,
            want,
        })
    }

    fn scoring(&self, active_blocks: Option<usize>) -> Scoring<'_> {
        Scoring {
            pooled: &self.pooled,
            dead: &self.dead,
            q: &self.q,
            records: &self.records,
            scores: &self.scores,
            max_blocks: self.max_blocks,
            queries: self.n_kv.len(),
            active_blocks,
        }
    }

    fn active(&self) -> usize {
        self.n_kv.iter().max().map_or(0, |n| n / BLOCK + 1)
    }

    /// Runs an arm: values compared and differing; a value written beyond a row's last block differs.
    fn arm(&mut self, run: &dyn Fn(&Loaded) -> Result<()>) -> Result<(u64, u64)> {
        self.scores.fill(0x5a)?;
        run(self)?;
        let got = self.scores.read()?;
        let (mut compared, mut bad) = (0, 0);
        for (i, n) in self.n_kv.iter().enumerate() {
            let row = i * self.max_blocks..(i + 1) * self.max_blocks;
            let (got, want, n) = (&got[row.clone()], &self.want[row], n / BLOCK + 1);
            compared += n as u64;
            bad += differing(&got[..n], &want[..n]) + got[n..].iter().filter(|v| v.to_bits() != 0x5a5a_5a5a).count() as u64;
        }
        Ok((compared, bad))
    }
}

/// The 12 published cases for the warp kernel and for the thread and tail kernels with the built-in and, in the small cases, every
/// number of blocks a workgroup. `full` off: the cases of up to 8,195 cells, of each the last queries.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn qsa_scores_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    for case in score_cases(full) {
        let (inputs, n_kv) = last_queries(&case, if full { case.queries } else { FEW });
        let mut loaded = Loaded::new(device, &inputs, n_kv, case.ctx / BLOCK + 2)?;
        let active = loaded.active();
        let thread = ScoreTable::for_arch(&device.info().arch).thread(active);
        let mut arms = vec![(Scorer::Warp, None), (thread, Some(active))];
        if case.ctx < 2_000 {
            let others = [64, 128, 256, 512].map(|per_group| Scorer::Thread { per_group });
            arms.extend(others.into_iter().filter(|o| *o != thread).chain([Scorer::Warp]).map(|s| (s, Some(active))));
        }
        for (scorer, active) in arms {
            let (compared, differing) = loaded.arm(&|l| score_with(device, scorer, &l.scoring(active)))?;
            let case = format!("{} {scorer:?}{}", case.name(), if active.is_some() { " active" } else { "" });
            report(CaseReport { suite: "qsa_scores_parity", case, compared, differing, max_err64: None });
        }
    }
    Ok(())
}

/// A case's last `few` queries.
fn last_queries(case: &ScoreCase, few: usize) -> (ScoreInputs, Vec<usize>) {
    let mut inputs = case.inputs();
    let skip = case.queries.saturating_sub(few);
    inputs.q.drain(..skip * QUERY_DIM);
    (inputs, (skip..case.queries).map(|i| case.n_kv(i)).collect())
}

/// Decode: 1 to 8 queries at contexts of every remainder, by the multi, rows and slots kernels, against the definition. The
/// last contexts need `full`.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn qsa_rows_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let contexts: &[(usize, usize)] = if full {
        &[(8, 64), (9, 64), (257, 512), (1_111, 2_048), (4_096, 32_768), (32_771, 32_772), (131_072, 262_144), (262_142, 262_144)]
    } else {
        &[(9, 64), (515, 2_048)]
    };
    for queries in 1..=MULTI_QUERIES {
        for (i, &(ctx, capacity)) in contexts.iter().enumerate() {
            let case = ScoreCase { ctx, queries, mode: i as u32 % 3, seed: (queries * 100 + i) as u64 };
            let window = (0..queries).map(|i| case.n_kv(i)).collect();
            let mut loaded = Loaded::new(device, &case.inputs(), window, capacity / BLOCK + 2)?;
            let mut arms = vec![("multi", loaded.arm(&|l| score_with(device, Scorer::Multi, &l.scoring(None)))?)];
            arms.push(("rows", loaded.arm(&|l| score_with(device, Scorer::Rows, &l.scoring(None)))?));
            arms.push(("slots", slots(device, &case, capacity)?));
            for (name, (compared, differing)) in arms {
                let case = format!("{} {name}", case.name());
                report(CaseReport { suite: "qsa_rows_parity", case, compared, differing, max_err64: None });
            }
        }
    }
    Ok(())
}

/// Queries of sequences of their own, each shorter than the one before; some slots share keys, as sequences of one prefix do.
fn slots(device: &Device, case: &ScoreCase, capacity: usize) -> Result<(u64, u64)> {
    let own: Vec<ScoreInputs> =
        (0..case.queries as u64 / 2 + 1).map(|i| ScoreCase { seed: case.seed + 1_000 * i, ..*case }.inputs()).collect();
    let n_kv: Vec<usize> = (0..case.queries).map(|i| (case.ctx * (case.queries - i) / case.queries).max(1)).collect();
    let max_blocks = capacity / BLOCK + 2;
    let mut loaded = Loaded::new(device, &own[0], n_kv.clone(), max_blocks)?;
    let mut buffers = Vec::new();
    for s in &own {
        buffers.push((device.upload(&s.pooled)?, device.upload(&s.dead)?));
    }
    let mut addresses = [Vec::new(), Vec::new()];
    for i in 0..case.queries {
        let slot = i % own.len();
        addresses[0].push(buffers[slot].0.address());
        addresses[1].push(buffers[slot].1.address());
        let of_slot = ScoreInputs {
            pooled: own[slot].pooled.clone(),
            dead: own[slot].dead,
            q: own[0].q[i * QUERY_DIM..(i + 1) * QUERY_DIM].to_vec(),
        };
        reference_scores(&of_slot, &|_| n_kv[i], max_blocks, &mut loaded.want[i * max_blocks..(i + 1) * max_blocks]);
    }
    let (pooled, dead) = (device.upload(&addresses[0])?, device.upload(&addresses[1])?);
    loaded.arm(&|l| score_slots(device, &pooled, &dead, &l.scoring(None)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::SuiteFn;

    fn total(device: &Device, suite: SuiteFn) -> (u64, u64, u64) {
        let mut t = (0, 0, 0);
        suite(device, false, &mut |c| {
            t = (t.0 + 1, t.1 + c.compared, t.2 + c.differing);
        })
        .unwrap();
        t
    }

    fn agrees(side: &str) {
        let Some(device) = crate::testing::tools(Device::open(side)) else { return };
        let (cases, compared, differing) = total(&device, qsa_scores_parity);
        assert!(cases == 16 && compared > 50_000 && differing == 0, "{side}: {cases} {compared} {differing}");
        let (cases, compared, differing) = total(&device, qsa_rows_parity);
        assert!(cases == 48 && compared > 10_000 && differing == 0, "{side}: {cases} {compared} {differing}");
    }

    #[test]
    fn scorers_agree_on_the_cuda_side() {
        agrees("shim-cuda");
    }

    #[test]
    fn scorers_agree_on_the_gfx12_side() {
        agrees("shim-gfx12");
    }

    #[test]
    fn scorers_agree_on_the_gfx11_side() {
        agrees("shim-gfx11");
    }

    #[test]
    fn a_broken_tree_is_seen() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        for suite in [qsa_scores_parity as SuiteFn, qsa_rows_parity] {
            suite(&device.with_defines(&["STRATA_BROKEN"]), false, &mut |c| {
                // small integers have exact sums in any order
                assert!(c.differing > 0 || c.case.contains("mode 2") || c.compared < 100, "{}", c.case);
            })
            .unwrap();
        }
    }
}
