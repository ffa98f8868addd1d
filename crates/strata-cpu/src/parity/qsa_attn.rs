//! Suite of the attention over selected cells: `qsa_attn_parity`.

use super::rng::Rng;
use super::{Arm, CaseReport};
use crate::pool::Pool;
use crate::qsa::internal::{Cells, ChunkBuf, GroupQuery, Inner, row_alone, row_spread};
use crate::qsa::{IndexNorm, NewCells, QsaCache, QsaKernels, QsaScratch, QsaShape};
use strata_ops::math::exp;
use strata_ops::qsa::kv::{KvKind, KvRows, Rows};
use strata_ops::qsa::{CHUNK, HEAD_DIM, INDEX_DIM, row_of};
use strata_ops::rope::{RopeScaling, RopeTable};

crate::versions! { mod reference = strata_ops::qsa::attend::attend_head; (kv: &KvRows<'_>, kv_head: usize, q: &[f32; HEAD_DIM], cells: &[i32], out: &mut [f32; HEAD_DIM]) }

crate::versions! { mod paged = strata_ops::qsa::attend::attend_head_paged; (kv: &KvRows<'_>, pages: &[i32], kv_head: usize, q: &[f32; HEAD_DIM], cells: &[i32], out: &mut [f32; HEAD_DIM]) }

/// One head by the definition under a page table ([`attend_head_paged`](strata_ops::qsa::attend::attend_head_paged)),
/// compiled for this CPU: for suites of other backends.
pub fn reference_head_paged(kv: &KvRows<'_>, pages: &[i32], kv_head: usize, q: &[f32; HEAD_DIM], cells: &[i32], out: &mut [f32; HEAD_DIM]) {
    // SAFETY: the level is one of this CPU's.
    unsafe { paged::pick(crate::simd::Simd::best())(kv, pages, kv_head, q, cells, out) };
}

/// One head by the definition.
pub(crate) fn reference_head(kv: &KvRows<'_>, kv_head: usize, q: &[f32; HEAD_DIM], cells: &[i32], out: &mut [f32; HEAD_DIM]) {
    // SAFETY: the scalar level runs on every CPU.
    unsafe { reference::pick(crate::simd::Simd::Scalar)(kv, kv_head, q, cells, out) };
}

const WIDTHS: [usize; 8] = [0, 1, 63, 64, 65, 130, 259, 2_051];
const FULL_WIDTHS: [usize; 5] = [1_023, 1_024, 1_025, 4_096, 16_385];

/// Attention of the fast arm, by one thread and spread over all, against the definition: every KV format, 2, 3, 4 and
/// 12 query heads to a KV head, widths about the chunk edges, runs of cells, gaps and repeats in any order. `full`
/// adds longer selections and more rows. `max_err64` is against softmax attention in FP64 over the decoded rows.
pub fn qsa_attn_parity(full: bool, report: &mut dyn FnMut(CaseReport)) {
    qsa_attn_parity_of(Arm::Fast, full, report);
}

/// [`qsa_attn_parity`] of a chosen arm.
pub fn qsa_attn_parity_of(arm: Arm, full: bool, report: &mut dyn FnMut(CaseReport)) {
    let kernels = match arm {
        Arm::Fast => QsaKernels::best(),
        Arm::Level(level) => QsaKernels::new(level),
        Arm::Broken => QsaKernels::best().with_chunk(broken_chunk),
    };
    let pool = Pool::new(super::threads().max(2));
    for (g, group) in [2usize, 3, 4, 12].into_iter().enumerate() {
        // small runs: the model's width with two of the groups only
        let long = matches!(group, 3 | 12);
        let cells = if full {
            20_480
        } else if long {
            2_304
        } else {
            512
        };
        let rope = RopeTable::new(cells, 64, 1e7, RopeScaling::None);
        let shape = QsaShape::new(2 * group, 2, HEAD_DIM, 1, INDEX_DIM, 512, 1e-6).expect("a supported geometry");
        let mut scratch = QsaScratch::new(&shape, 1, cells, pool.threads()).expect("a supported capacity");
        for (k, kind) in KvKind::ALL.into_iter().enumerate() {
            let mut rng = Rng::new((g * 16 + k) as u64);
            let cache = random_cache(&mut rng, &pool, &shape, kind, cells, &rope);
            for width in WIDTHS.into_iter().chain(FULL_WIDTHS).filter(|w| full || *w < 1_000 || (*w == 2_051 && long)) {
                let mut case = CaseReport {
                    suite: "qsa_attn_parity",
                    case: format!("{} group {group} width {width}", kind.name()),
                    compared: 0,
                    differing: 0,
                    max_err64: None,
                };
                // the reference is slow: long selections take each pattern in turn instead of all of them
                let rows = if full || width < 1_000 { 3 } else { 1 };
                for row in 0..rows {
                    let ids = selection(&mut rng, row + k, width, cells);
                    let q = rng.normals(shape.heads() * HEAD_DIM, 2.0);
                    run_row(&pool, &kernels, &cache, &ids, &q, &mut scratch, &mut case);
                }
                report(case);
            }
        }
    }
}

/// A cache of normal keys and values.
fn random_cache(rng: &mut Rng, pool: &Pool, shape: &QsaShape, kind: KvKind, cells: usize, rope: &RopeTable) -> QsaCache {
    let mut cache = QsaCache::new(shape, kind, cells).expect("a small cache fits");
    let wide = shape.kv_heads() * HEAD_DIM;
    let (gain, index_k) = (vec![1.0; INDEX_DIM], rng.normals(256 * INDEX_DIM, 1.0));
    for _ in 0..cells / 256 {
        let (k, v) = (rng.normals(256 * wide, 1.0), rng.normals(256 * wide, 1.0));
        let new = NewCells { k: &k, v: &v, index_k: &index_k, n: 256 };
        cache.append(pool, &new, &IndexNorm { gain: &gain, eps: 1e-6, rope }).expect("the cells fit");
    }
    cache
}

/// Cells by pattern: a run, ascending with gaps, or in any order with repeats.
fn selection(rng: &mut Rng, pattern: usize, width: usize, cells: usize) -> Vec<i32> {
    match pattern % 3 {
        0 => {
            let from = rng.below(cells - width + 1);
            (from..from + width).map(|c| c as i32).collect()
        }
        1 => {
            // each cell with the chance that fills the width exactly
            let mut left = width;
            let take = |c: &usize| {
                let yes = rng.below(cells - c) < left;
                left -= usize::from(yes);
                yes
            };
            (0..cells).filter(take).map(|c| c as i32).collect()
        }
        _ => (0..width).map(|_| rng.below(cells) as i32).collect(),
    }
}

/// One row in every arm, added to the case.
fn run_row(pool: &Pool, kernels: &QsaKernels, cache: &QsaCache, ids: &[i32], q: &[f32], scratch: &mut QsaScratch, case: &mut CaseReport) {
    let kv = cache.rows();
    let heads = q.len() / HEAD_DIM;
    let mut want = vec![f32::from_bits(0x7fc0_1111); q.len()];
    for (h, (q, out)) in q.as_chunks().0.iter().zip(want.as_chunks_mut().0).enumerate() {
        reference_head(&kv, h / (heads / kv.kv_heads), q, ids, out);
    }
    let mut got = vec![f32::from_bits(0x7fc0_2222); q.len()];
    let mut compare = |got: &[f32]| {
        case.compared += got.len() as u64;
        case.differing += got.iter().zip(&want).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as u64;
    };
    let cells = Cells::Ids(ids);
    row_alone(kernels, &kv, q, cells, &mut scratch.workers[0].lock().unwrap_or_else(|e| e.into_inner()).heads, &mut got);
    compare(&got);
    got.fill(f32::from_bits(0x7fc0_3333));
    if let Some((_, shared)) = &mut scratch.shared {
        row_spread(pool, kernels, &kv, q, cells, &scratch.workers, shared, &mut got);
        compare(&got);
    }
    for h in [0, heads - 1] {
        let r = h * HEAD_DIM..(h + 1) * HEAD_DIM;
        let kv_head = h / (heads / kv.kv_heads);
        let rows: Vec<usize> = ids.iter().map(|c| row_of(*c as usize, kv_head, kv.kv_heads)).collect();
        let exact = attention_f64(&kv, &q[r.clone()], &rows);
        let scale = exact.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
        let err = got[r].iter().zip(&exact).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / scale;
        case.max_err64 = Some(case.max_err64.unwrap_or(0.0).max(err));
    }
}

/// Softmax attention of one head in FP64 over the values that physical rows decode to.
pub fn attention_f64(kv: &KvRows<'_>, q: &[f32], selected: &[usize]) -> Vec<f64> {
    let decode = |rows: &Rows<'_>, row: usize| {
        let mut x = [0.0f32; HEAD_DIM];
        rows.decode(row, &mut x);
        let mut x = x.map(f64::from);
        if let Rows::Q4_0(_) = rows {
            hadamard_f64(&mut x);
        }
        x
    };
    let scores: Vec<f64> =
        selected.iter().map(|r| decode(&kv.k, *r).iter().zip(q).map(|(a, b)| a * f64::from(*b)).sum::<f64>() / 16.0).collect();
    let top = scores.iter().fold(f64::MIN, |m, s| m.max(*s));
    let (mut sum, mut out) = (0.0, vec![0.0; HEAD_DIM]);
    for (r, s) in selected.iter().zip(&scores) {
        let p = (s - top).exp();
        sum += p;
        for (o, v) in out.iter_mut().zip(decode(&kv.v, *r)) {
            *o += p * v;
        }
    }
    out.iter().map(|o| if sum > 0.0 { o / sum } else { 0.0 }).collect()
}

fn hadamard_f64(x: &mut [f64; HEAD_DIM]) {
    let mut h = 1;
    while h < HEAD_DIM {
        for i in (0..HEAD_DIM).filter(|i| i & h == 0) {
            (x[i], x[i + h]) = (x[i] + x[i + h], x[i] - x[i + h]);
        }
        h *= 2;
    }
    x.iter_mut().for_each(|v| *v /= 16.0);
}

/// The negative control: chunks of 32 cells instead of 64, merged by the published formula.
unsafe fn broken_chunk(kv: &KvRows<'_>, kv_head: usize, q: &GroupQuery, cells: &[i32], buf: &mut ChunkBuf, _: Inner) {
    let right = QsaKernels::best();
    right.chunk(kv, kv_head, q, &cells[..cells.len().min(CHUNK / 2)], buf);
    if cells.len() <= CHUNK / 2 {
        return;
    }
    let heads = buf.acc.len() / HEAD_DIM;
    let mut second = ChunkBuf::new(heads);
    right.chunk(kv, kv_head, q, &cells[CHUNK / 2..], &mut second);
    for h in 0..heads {
        let m = buf.m[h].max(second.m[h]);
        let (a, b) = (exp(buf.m[h] - m), exp(second.m[h] - m));
        buf.m[h] = m;
        buf.l[h] = buf.l[h] * a + second.l[h] * b;
        for d in h * HEAD_DIM..(h + 1) * HEAD_DIM {
            buf.acc[d] = buf.acc[d] * a + second.acc[d] * b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Simd;

    #[test]
    fn attention_agrees_at_every_level() {
        for level in Simd::available() {
            let (mut cases, mut worst) = (0, [0.0f64; 5]);
            qsa_attn_parity_of(Arm::Level(level), false, &mut |r| {
                assert!(r.differing == 0, "{level:?} {r:?}");
                // no cell gives no output to measure, but it is compared
                assert!(r.compared > 0);
                let kind = KvKind::ALL.iter().position(|k| r.case.starts_with(k.name())).unwrap();
                worst[kind] = worst[kind].max(r.max_err64.unwrap());
                cases += 1;
            });
            println!("{level:?}: {cases} cases, errors {worst:?} (f32, fp16, int8, q4_0, k8v4)");
            assert_eq!(cases, 5 * (4 * (WIDTHS.len() - 1) + 2));
            assert!(worst.iter().all(|e| *e < 4e-6), "{worst:?}");
        }
    }

    #[test]
    fn a_broken_chunk_is_seen_in_every_format() {
        let mut seen = [0u64; 5];
        qsa_attn_parity_of(Arm::Broken, false, &mut |r| {
            let kind = KvKind::ALL.iter().position(|k| r.case.starts_with(k.name())).unwrap();
            seen[kind] += r.differing;
        });
        assert!(seen.iter().all(|d| *d > 1_000), "{seen:?}");
    }
}
