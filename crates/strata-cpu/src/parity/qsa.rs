//! Suites of the block selection: `qsa_scores_parity` and `qsa_topk_active_parity`.

use super::rng::Rng;
use super::{Arm, CaseReport};
use crate::pool::Pool;
use crate::qsa::internal::{IndexKeys, Select, TILE};
use crate::qsa::{QsaKernels, QsaShape};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_ops::qsa::topk::{emit, order_key};
use strata_ops::qsa::{BLOCK, HEAD_DIM, INDEX_DIM, selection_width};

/// Indexer heads of the published cases.
const HEADS: usize = 4;
/// Widest selection of the published cases.
const WIDTH: usize = 2051;
/// Capacity in cells of the published top-k cases.
pub const TOPK_CAPACITY: usize = 262_144;

crate::versions! { mod reference = strata_ops::qsa::score::scores; (pooled: &[f32], dead: &[f32; INDEX_DIM], q: &[f32], n_kv: usize, out: &mut [f32]) }
crate::versions! { mod reference_top_k = strata_ops::qsa::topk::top_k; (scores: &[f32], n_kv: usize, width: usize, ids: &mut [i32]) -> usize }

fn kernels(arm: Arm) -> QsaKernels {
    match arm {
        Arm::Fast => QsaKernels::best(),
        Arm::Level(level) => QsaKernels::new(level),
        Arm::Broken => QsaKernels::best().with_score(broken_score).with_top_k(broken_top_k),
    }
}

fn shape() -> QsaShape {
    QsaShape::new(24, 2, HEAD_DIM, HEADS, INDEX_DIM, 512, 1e-6).expect("the published geometry is supported")
}

/// A case of `qsa_scores_parity`: query i of n is at position context - n + i; values are normal (mode 0), of a wide range
/// with zeros (1) or small integers (2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreCase {
    pub ctx: usize,
    pub queries: usize,
    pub mode: u32,
    pub seed: u64,
}

/// Keys and queries of a case.
pub struct ScoreInputs {
    /// `[blocks][128]`
    pub pooled: Vec<f32>,
    pub dead: [f32; INDEX_DIM],
    /// `[queries][4][128]`
    pub q: Vec<f32>,
}

/// The published cases.
const SCORE_CASES: [ScoreCase; 12] = {
    const fn case(seed: u64, ctx: usize, queries: usize, mode: u32) -> ScoreCase {
        ScoreCase { ctx, queries, mode, seed }
    }
    [
        case(1_000, 1_111, 9, 0),
        case(1_001, 1_111, 64, 1),
        case(1_002, 8_192, 65, 0),
        case(1_003, 8_195, 200, 2),
        case(1_004, 32_768, 256, 0),
        case(1_005, 32_771, 1_000, 1),
        case(1_006, 131_072, 64, 2),
        case(1_007, 131_075, 333, 0),
        case(1_008, 262_144, 129, 1),
        case(1_009, 40_000, 2_048, 0),
        case(1_010, 140_000, 1_024, 0),
        case(1_011, 200_000, 1_024, 0),
    ]
};

/// The 12 published cases (138,898,872 scores), or with `full` off those of up to 8,195 cells.
pub fn score_cases(full: bool) -> impl Iterator<Item = ScoreCase> {
    SCORE_CASES.into_iter().filter(move |c| full || c.ctx <= 8_195)
}

impl ScoreCase {
    /// Its name in reports.
    pub fn name(&self) -> String {
        format!("ctx {} nq {} mode {}", self.ctx, self.queries, self.mode)
    }

    /// Cells of a query's sequence.
    pub fn n_kv(&self, query: usize) -> usize {
        self.ctx - self.queries + query + 1
    }

    /// Its random keys and queries.
    pub fn inputs(&self) -> ScoreInputs {
        let mut rng = Rng::new(self.seed);
        let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| score_input(&mut rng, self.mode)).collect() };
        let (pooled, dead) = (values(self.ctx / BLOCK * INDEX_DIM), values(INDEX_DIM));
        let dead = *dead.first_chunk().expect("one key");
        ScoreInputs { pooled, dead, q: values(self.queries * HEADS * INDEX_DIM) }
    }
}

/// The definition's scores, over every core: row i has `n_kv(i) / 4 + 1` entries from `i * stride` on, others stay as they are.
pub fn reference_scores(inputs: &ScoreInputs, n_kv: &(dyn Fn(usize) -> usize + Sync), stride: usize, out: &mut [f32]) {
    let queries = inputs.q.chunks_exact(HEADS * INDEX_DIM);
    let rows: Vec<_> = out.chunks_mut(stride).zip(queries).map(|(out, q)| Mutex::new((out, q))).collect();
    let reference = reference::pick(crate::simd::Simd::Scalar);
    Pool::new(super::threads()).run(rows.len(), &|i, _| {
        let (out, q) = &mut *rows[i].lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the scalar level runs on every CPU.
        unsafe { reference(&inputs.pooled, &inputs.dead, q, n_kv(i), out) };
    });
}

/// Scores of the fast arm against the definition: [`score_cases`].
pub fn qsa_scores_parity(full: bool, report: &mut dyn FnMut(CaseReport)) {
    qsa_scores_parity_of(Arm::Fast, full, report);
}

/// [`qsa_scores_parity`] of a chosen arm.
pub fn qsa_scores_parity_of(arm: Arm, full: bool, report: &mut dyn FnMut(CaseReport)) {
    let (kernels, pool, shape) = (kernels(arm), Pool::new(super::threads()), shape());
    let reference = reference::pick(crate::simd::Simd::Scalar);
    for case in score_cases(full) {
        let (ctx, nq) = (case.ctx, case.queries);
        let ScoreInputs { pooled, dead, q } = &case.inputs();
        let keys = IndexKeys { pooled: pooled.as_chunks().0, dead };
        let buffers: Vec<_> = (0..pool.threads()).map(|_| Mutex::new((vec![0.0f32; ctx / BLOCK + 1], wide_select(&shape, ctx)))).collect();
        let (compared, differing) = (AtomicU64::new(0), AtomicU64::new(0));
        pool.run(nq.div_ceil(TILE), &|tile, w| {
            let mut buffers = buffers[w].lock().unwrap_or_else(|e| e.into_inner());
            let (want, select) = &mut *buffers;
            let rows = tile * TILE..((tile + 1) * TILE).min(nq);
            let q = &q[rows.start * HEADS * INDEX_DIM..rows.end * HEADS * INDEX_DIM];
            let first_n_kv = case.n_kv(rows.start);
            // entries that an arm does not write differ
            want.fill(f32::from_bits(0x7fc0_1111));
            select.scores.fill(f32::from_bits(0x7fc0_2222));
            select.score(&kernels, keys, q, HEADS, first_n_kv);
            for (r, q) in q.chunks_exact(HEADS * INDEX_DIM).enumerate() {
                let n_kv = first_n_kv + r;
                // SAFETY: the scalar level runs on every CPU.
                unsafe { reference(pooled, dead, q, n_kv, want) };
                let n = n_kv / BLOCK + 1;
                let got = &select.scores[r * select.stride..][..n];
                let bad = got.iter().zip(&want[..n]).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                compared.fetch_add(n as u64, Ordering::Relaxed);
                differing.fetch_add(bad as u64, Ordering::Relaxed);
            }
        });
        report(CaseReport {
            suite: "qsa_scores_parity",
            case: case.name(),
            compared: compared.into_inner(),
            differing: differing.into_inner(),
            max_err64: None,
        });
    }
}

/// Selection memory that scores however short the context is.
fn wide_select(shape: &QsaShape, ctx: usize) -> Select {
    let one = QsaShape::new(shape.heads(), shape.kv_heads(), HEAD_DIM, HEADS, INDEX_DIM, 1, 1e-6).expect("a smaller budget");
    Select::new(&one, TILE, ctx)
}

fn score_input(rng: &mut Rng, mode: u32) -> f32 {
    match mode {
        0 => rng.normal(),
        1 if rng.below(10) == 0 => 0.0,
        1 => rng.normal() * f32::from_bits(((127 - 20 + rng.below(41)) as u32) << 23),
        _ => rng.below(7) as f32 - 3.0,
    }
}

/// (context, queries, mode) of the published top-k cases.
const TOPK_CASES: [(usize, usize, u32); 16] = [
    (1_111, 256, 0),
    (8_192, 256, 0),
    (32_768, 256, 0),
    (131_072, 256, 0),
    (131_075, 255, 0),
    (135_164, 256, 0),
    (135_168, 256, 0),
    (250_022, 256, 0),
    (262_144, 256, 0),
    (131_072, 1, 0),
    (131_072, 8, 0),
    (131_072, 257, 0),
    (131_072, 256, 1),
    (131_072, 256, 2),
    (131_072, 256, 3),
    (131_072, 256, 4),
];

/// Block counts (the tail included) on both sides of the sizes where a backend changes its kernel.
const TOPK_EDGES: [usize; 10] = [2_048, 2_049, 4_095, 4_096, 9_216, 9_217, 17_408, 17_409, 33_792, 33_793];

/// A case of `qsa_topk_active_parity`: query i of n is at position context - n + i.
#[derive(Clone, Copy, Debug)]
pub struct TopkCase {
    pub ctx: usize,
    pub queries: usize,
    /// Random scores (0, 3, 4), all 0 (1), block number mod 7 (2). For GPU backends 3 counts no active blocks, 4 too many.
    pub mode: u32,
    seed: u64,
}

impl TopkCase {
    /// Another case.
    pub fn new(ctx: usize, queries: usize, mode: u32, seed: u32) -> TopkCase {
        TopkCase { ctx, queries, mode, seed: u64::from(seed) << 32 }
    }

    /// The 16 published cases, then the block counts at which GPU backends change kernels.
    pub fn all() -> Vec<TopkCase> {
        let edges = TOPK_EDGES.iter().flat_map(|reach| [(4 * (reach - 1), 8, 0), (4 * (reach - 1) + 3, 8, 0)]);
        let cases = TOPK_CASES.into_iter().chain(edges).enumerate();
        cases.map(|(i, (ctx, queries, mode))| TopkCase::new(ctx, queries, mode, i as u32)).collect()
    }

    /// Cells that query `q` sees.
    pub fn cells(&self, q: usize) -> usize {
        self.ctx - self.queries + q + 1
    }

    /// Scores of the blocks of query `q`, the tail included.
    pub fn scores(&self, q: usize, out: &mut [f32]) {
        let (n_kv, mut rng) = (self.cells(q), Rng::new(self.seed | q as u64));
        for (j, s) in out[..n_kv / BLOCK + 1].iter_mut().enumerate() {
            *s = match self.mode {
                1 => 0.0,
                2 => (j % 7) as f32,
                _ => rng.uniform() * 200.0,
            };
        }
        if !n_kv.is_multiple_of(BLOCK) {
            out[n_kv / BLOCK] += 1e9;
        }
    }

    /// The published width of query `q`, min(cells, 2,051), and the engine's, the budget and the tail.
    pub fn widths(&self, q: usize) -> [usize; 2] {
        [self.cells(q).min(WIDTH), selection_width(self.cells(q), WIDTH / BLOCK)]
    }
}

/// Ids of the fast top-k against the definition (and, for the first query of a case, against sorting), for both widths
/// of every case; with `full` all queries, else 16 a case.
pub fn qsa_topk_active_parity(full: bool, report: &mut dyn FnMut(CaseReport)) {
    qsa_topk_active_parity_of(Arm::Fast, full, report);
}

/// [`qsa_topk_active_parity`] of a chosen arm.
pub fn qsa_topk_active_parity_of(arm: Arm, full: bool, report: &mut dyn FnMut(CaseReport)) {
    let (kernels, pool, shape) = (kernels(arm), Pool::new(super::threads()), shape());
    let buffers: Vec<_> = (0..pool.threads()).map(|_| Mutex::new((vec![0i32; WIDTH], Select::new(&shape, 1, TOPK_CAPACITY)))).collect();
    for case in TopkCase::all() {
        let run = if full { case.queries } else { case.queries.min(16) };
        let (compared, differing) = (AtomicU64::new(0), AtomicU64::new(0));
        pool.run(run, &|q, w| {
            let mut buffers = buffers[w].lock().unwrap_or_else(|e| e.into_inner());
            let (want, select) = &mut *buffers;
            let n_kv = case.cells(q);
            case.scores(q, &mut select.scores);
            for width in case.widths(q) {
                // SAFETY: the scalar level runs on every CPU.
                let n = unsafe { reference_top_k::pick(crate::simd::Simd::Scalar)(&select.scores, n_kv, width, want) };
                let count = |got: &[i32]| {
                    let bad = got.iter().zip(&want[..n]).filter(|(a, b)| a != b).count() + n.abs_diff(got.len());
                    compared.fetch_add(n as u64, Ordering::Relaxed);
                    differing.fetch_add(bad as u64, Ordering::Relaxed);
                };
                if q == 0 {
                    count(&sorted(&select.scores, n_kv, width));
                }
                count(select.ids(&kernels, 0, n_kv, width));
            }
        });
        report(CaseReport {
            suite: "qsa_topk_active_parity",
            case: format!("ctx {} nq {} mode {}", case.ctx, case.queries, case.mode),
            compared: compared.into_inner(),
            differing: differing.into_inner(),
            max_err64: None,
        });
    }
}

/// The selection by sorting blocks: score descending, then number ascending.
pub(crate) fn sorted(scores: &[f32], n_kv: usize, width: usize) -> Vec<i32> {
    let mut order: Vec<usize> = (0..=n_kv / BLOCK).collect();
    order.sort_by_key(|b| (std::cmp::Reverse(order_key(scores[*b])), *b));
    let cells = order.into_iter().flat_map(|b| (BLOCK * b..(BLOCK * (b + 1)).min(n_kv)).map(|c| c as i32));
    let mut ids: Vec<i32> = if width < n_kv { cells.take(width).collect() } else { (0..n_kv as i32).collect() };
    ids.sort_unstable();
    ids
}

/// The negative control of the scores: levels 16 and 8 of the butterfly exchanged.
unsafe fn broken_score(keys: &[[f32; INDEX_DIM]], q: &[f32], prepared: usize, out: &mut [f32], stride: usize) {
    for (b, key) in keys.iter().enumerate() {
        for (r, q) in q.chunks_exact(prepared).enumerate() {
            let mut score = 0.0f32;
            for q in q.as_chunks::<INDEX_DIM>().0 {
                let mut p: [f32; 32] =
                    std::array::from_fn(|l| (1..4).fold(key[4 * l] * q[l], |d, j| key[4 * l + j].mul_add(q[32 * j + l], d)));
                for half in [8, 16, 4, 2, 1] {
                    p = std::array::from_fn(|l| p[l] + p[l ^ half]);
                }
                score += p[0].max(0.0);
            }
            out[r * stride + b] = score;
        }
    }
}

/// The negative control of the top-k: ties filled from the last block.
unsafe fn broken_top_k(scores: &[f32], n_kv: usize, width: usize, ids: &mut [i32], keys: &mut [u32], _rest: &mut [u32]) -> usize {
    let n = n_kv / BLOCK + 1;
    for (b, k) in keys[..n].iter_mut().enumerate() {
        *k = order_key(scores[b]);
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|b| (keys[*b], *b));
    let (mut left, mut take) = (width.min(n_kv), vec![0u32; n]);
    for b in order.into_iter().rev() {
        take[b] = left.min(BLOCK).min(n_kv - BLOCK * b) as u32;
        left -= take[b] as usize;
    }
    let mut at = 0;
    for (b, cells) in take.into_iter().enumerate() {
        emit(ids, &mut at, b, cells);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Simd;

    fn totals(suite: fn(Arm, bool, &mut dyn FnMut(CaseReport)), arm: Arm) -> (usize, u64, u64) {
        let mut t = (0, 0, 0);
        suite(arm, false, &mut |r| {
            t = (t.0 + 1, t.1 + r.compared, t.2 + r.differing);
        });
        t
    }

    #[test]
    fn scores_agree_at_every_level() {
        for level in Simd::available() {
            assert_eq!(totals(qsa_scores_parity_of, Arm::Level(level)), (4, 2_496 + 17_312 + 132_641 + 404_900, 0), "{level:?}");
        }
    }

    #[test]
    fn the_published_score_counts_add_up() {
        let count = |c: ScoreCase| (0..c.queries).map(|i| (c.n_kv(i) / 4 + 1) as u64).sum::<u64>();
        assert_eq!(score_cases(true).map(count).sum::<u64>(), 138_898_872);
        assert_eq!(count(SCORE_CASES[11]), 51_069_696);
    }

    #[test]
    fn a_broken_scorer_is_seen() {
        let (cases, compared, differing) = totals(qsa_scores_parity_of, Arm::Broken);
        assert!(cases == 4 && differing > compared / 100, "{differing} of {compared}");
    }

    #[test]
    fn top_k_agrees_at_every_level() {
        for level in Simd::available() {
            let (cases, compared, differing) = totals(qsa_topk_active_parity_of, Arm::Level(level));
            assert!((cases, differing) == (36, 0) && compared > 1_000_000, "{level:?} {cases} {compared} {differing}");
        }
    }

    #[test]
    fn a_broken_top_k_is_seen() {
        assert!(totals(qsa_topk_active_parity_of, Arm::Broken).2 > 0);
    }
}
