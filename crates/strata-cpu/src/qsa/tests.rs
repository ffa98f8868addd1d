use super::*;
use crate::parity::reference_head;
use crate::parity::rng::Rng;
use crate::pool::Pool;
use crate::simd::Simd;
use strata_ops::qsa::kv::KvKind;
use strata_ops::rope::{RopeScaling, RopeTable};

/// A cache of normal rows; index keys of few values give ties and scores of 0.
fn filled(shape: &QsaShape, kind: KvKind, cells: usize, seed: u64) -> QsaCache {
    let mut rng = Rng::new(seed);
    let rope = RopeTable::new(cells, 64, 1e7, RopeScaling::None);
    let wide = shape.kv_heads() * 256;
    let (k, v) = (rng.normals(cells * wide, 1.0), rng.normals(cells * wide, 1.0));
    let index_k = rng.normals(cells * 128, 1.0);
    let mut cache = QsaCache::new(shape, kind, cells).unwrap();
    let new = NewCells { k: &k, v: &v, index_k: &index_k, n: cells };
    cache.append(&Pool::new(1), &new, &IndexNorm { gain: &[1.0; 128], eps: 1e-6, rope: &rope }).unwrap();
    cache
}

/// The definition, row by row.
fn defined(cache: &QsaCache, shape: &QsaShape, rows: &QueryRows<'_>) -> Vec<u32> {
    let mut out = vec![0.0f32; rows.n * shape.heads() * 256];
    for (i, out) in out.chunks_exact_mut(shape.heads() * 256).enumerate() {
        let pos = rows.first_pos + i;
        let (mut scores, mut ids) = (vec![0.0; pos / 4 + 2], vec![0; pos + 1]);
        let iq = &rows.iq[i * shape.index_heads() * 128..][..shape.index_heads() * 128];
        let n = select(cache, shape, iq, pos, &mut scores, &mut ids).unwrap();
        if rows.dense {
            ids = (0..=pos as i32).collect();
        } else {
            ids.truncate(n);
        }
        for (h, out) in out.as_chunks_mut::<256>().0.iter_mut().enumerate() {
            let q = &rows.q[(i * shape.heads() + h) * 256..].first_chunk().unwrap();
            reference_head(&cache.rows(), h / shape.group(), q, &ids, out);
        }
    }
    out.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn rows_follow_the_definition_whatever_the_threads_and_the_level() {
    // (heads, KV heads, indexer heads, budget in blocks)
    let shapes = [(4, 2, 4, 3), (3, 1, 1, 20), (8, 2, 5, 40), (24, 2, 4, 17)];
    for (s, (heads, kv_heads, index_heads, budget)) in shapes.into_iter().enumerate() {
        let shape = QsaShape::new(heads, kv_heads, 256, index_heads, 128, budget, 1e-6).unwrap();
        for (k, kind) in KvKind::ALL.into_iter().enumerate() {
            let cache = filled(&shape, kind, 300, (s * 8 + k) as u64);
            let mut rng = Rng::new(99);
            for (first_pos, n, dense) in [(0, 1, false), (0, 19, false), (70, 33, false), (299, 1, false), (260, 3, false), (290, 4, true)]
            {
                let (q, iq) = (rng.normals(n * heads * 256, 2.0), rng.normals(n * index_heads * 128, 1.0));
                let rows = QueryRows { q: &q, iq: &iq, first_pos, n, dense };
                let want = defined(&cache, &shape, &rows);
                for (level, threads) in Simd::available().into_iter().flat_map(|l| [(l, 1), (l, 2), (l, 5)]) {
                    let (pool, mut scratch) = (Pool::new(threads), QsaScratch::new(&shape, 33, 300, threads).unwrap());
                    let mut out = vec![f32::NAN; want.len()];
                    attend(&pool, &QsaKernels::new(level), &cache, &shape, &rows, &mut out, &mut scratch).unwrap();
                    let same = out.iter().zip(&want).filter(|(a, b)| a.to_bits() == **b).count();
                    assert_eq!(
                        same,
                        want.len(),
                        "{kind:?} {heads}/{kv_heads} at {first_pos} n {n} dense {dense} {level:?} {threads} threads"
                    );
                }
            }
        }
    }
}

#[test]
fn windows_of_stored_chunks_continue_the_merge() {
    // more chunks than a window holds
    let shape = QsaShape::new(2, 1, 256, 1, 128, 1 << 20, 1e-6).unwrap();
    let cache = filled(&shape, KvKind::Int8, 4_500, 7);
    let mut rng = Rng::new(3);
    let (q, iq) = (rng.normals(512, 2.0), rng.normals(128, 1.0));
    let rows = QueryRows { q: &q, iq: &iq, first_pos: 4_499, n: 1, dense: false };
    let mut scratch = QsaScratch::new(&shape, 1, 4_500, 3).unwrap();
    let mut out = vec![0.0; 512];
    attend(&Pool::new(3), &QsaKernels::best(), &cache, &shape, &rows, &mut out, &mut scratch).unwrap();
    assert_eq!(out.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), defined(&cache, &shape, &rows));
}

#[test]
fn fast_top_k_agrees_with_sorting() {
    let kernels: Vec<QsaKernels> = Simd::available().into_iter().map(QsaKernels::new).collect();
    let mut rng = Rng::new(11);
    let special = [0.0, -0.0, f32::NAN, 1e9, -1.0, f32::INFINITY, f32::NEG_INFINITY, 1e-42, -1e-42, 2.0];
    for case in 0..4_000 {
        let n_kv = 1 + rng.below(500);
        let width = rng.below(520);
        let scores: Vec<f32> = (0..=n_kv / 4)
            .map(|_| match case % 4 {
                0 => special[rng.below(10)],
                1 => rng.below(7) as f32,
                2 => f32::from_bits(rng.bits() as u32),
                _ => 1.0 + rng.below(600) as f32 * f32::EPSILON,
            })
            .collect();
        let want = crate::parity::sorted(&scores, n_kv, width);
        let (mut ids, mut keys, mut rest) = (vec![-1; 520], vec![7; 126], vec![7; 126]);
        for k in &kernels {
            let n = k.top_k(&scores, n_kv, width, &mut ids, &mut keys, &mut rest);
            assert_eq!(ids[..n], want, "case {case} n_kv {n_kv} width {width} {:?}", k.level());
        }
    }
}

#[test]
fn huge_and_tiny_values_have_one_answer() {
    // the clamp, the zero scale and products that leave the range of a float
    let shape = QsaShape::new(2, 1, 256, 1, 128, 512, 1e-6).unwrap();
    for kind in [KvKind::Int8, KvKind::F32] {
        for scale in [1e-38f32, 1e-25, 1e4, 3e4] {
            let mut rng = Rng::new(5);
            let rope = RopeTable::new(64, 64, 1e7, RopeScaling::None);
            let mut cache = QsaCache::new(&shape, kind, 64).unwrap();
            let (k, v, index_k) = (rng.normals(64 * 256, scale), rng.normals(64 * 256, scale), rng.normals(64 * 128, 1.0));
            let new = NewCells { k: &k, v: &v, index_k: &index_k, n: 64 };
            cache.append(&Pool::new(1), &new, &IndexNorm { gain: &[1.0; 128], eps: 1e-6, rope: &rope }).unwrap();
            let (q, iq) = (rng.normals(512, scale), rng.normals(128, 1.0));
            let rows = QueryRows { q: &q, iq: &iq, first_pos: 63, n: 1, dense: false };
            for level in Simd::available() {
                let mut scratch = QsaScratch::new(&shape, 1, 64, 1).unwrap();
                let mut out = vec![0.0; 512];
                attend(&Pool::new(1), &QsaKernels::new(level), &cache, &shape, &rows, &mut out, &mut scratch).unwrap();
                assert_eq!(
                    out.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                    defined(&cache, &shape, &rows),
                    "{kind:?} {scale} {level:?}"
                );
            }
        }
    }
}

#[test]
fn sequences_of_one_call_have_the_bits_of_each_alone() {
    let shape = QsaShape::new(4, 2, 256, 4, 128, 20, 1e-6).unwrap();
    let mut rng = Rng::new(5);
    // few rows, which threads share one by one, and many; rows lie in another order than sequences
    for lens in [vec![(300, 1), (3, 1)], vec![(300, 1), (40, 9), (1, 1), (200, 30)], vec![(300, 1); 12]] {
        let caches: Vec<QsaCache> = lens.iter().enumerate().map(|(i, (cells, _))| filled(&shape, KvKind::Int8, *cells, i as u64)).collect();
        let total: usize = lens.iter().map(|(_, n)| n).sum();
        let (q, iq) = (rng.normals(total * 1024, 2.0), rng.normals(total * 512, 1.0));
        let (mut seqs, mut want, mut end) = (Vec::new(), vec![0; total * 1024], total);
        for (cache, (cells, n)) in caches.iter().zip(&lens) {
            let at = end - n;
            let of = |width: usize| at * width..end * width;
            let rows = QueryRows { q: &q[of(1024)], iq: &iq[of(512)], first_pos: cells - n, n: *n, dense: false };
            want[of(1024)].copy_from_slice(&defined(cache, &shape, &rows));
            seqs.push(Some(SequenceQueries { cache, rows, at }));
            end = at;
        }
        for threads in [1, 3] {
            let (pool, kernels, mut out) = (Pool::new(threads), QsaKernels::best(), vec![0.0; total * 1024]);
            let mut scratch = QsaScratch::new(&shape, 30, 300, threads).unwrap();
            attend_all(&pool, &kernels, &shape, &seqs, &mut out, &mut scratch).unwrap();
            assert!(out.iter().map(|v| v.to_bits()).eq(want.iter().copied()), "{lens:?}, {threads} threads");
            // the first one's row, which is the last of the output, on the second one's
            let row = seqs[1].unwrap().at;
            seqs[0].as_mut().unwrap().at = row;
            assert_eq!(attend_all(&pool, &kernels, &shape, &seqs, &mut out, &mut scratch), Err(QsaError::Overlap { row }));
            seqs[0].as_mut().unwrap().at = total - 1;
        }
    }
}

#[test]
fn wrong_calls_are_refused() {
    let unsupported = |r: Result<QsaShape, QsaError>| matches!(r, Err(QsaError::Unsupported { .. }));
    assert!(unsupported(QsaShape::new(24, 2, 128, 4, 128, 512, 1e-6)));
    assert!(unsupported(QsaShape::new(24, 2, 256, 4, 64, 512, 1e-6)));
    assert!(unsupported(QsaShape::new(24, 0, 256, 4, 128, 512, 1e-6)));
    assert!(unsupported(QsaShape::new(25, 2, 256, 4, 128, 512, 1e-6)));
    assert!(unsupported(QsaShape::new(34, 2, 256, 4, 128, 512, 1e-6)));
    assert!(unsupported(QsaShape::new(24, 2, 256, 0, 128, 512, 1e-6)));
    assert!(unsupported(QsaShape::new(24, 2, 256, 4, 128, 0, 1e-6)));
    let shape = QsaShape::new(4, 2, 256, 4, 128, 512, 1e-6).unwrap();
    let cache = filled(&shape, KvKind::F16, 20, 1);
    let (q, iq) = (vec![0.0; 2 * 1024], vec![0.0; 2 * 512]);
    let (pool, kernels, mut out) = (Pool::new(1), QsaKernels::best(), vec![0.0; 2 * 1024]);
    let mut scratch = QsaScratch::new(&shape, 2, 20, 1).unwrap();
    let mut call = |rows: QueryRows<'_>, scratch: &mut QsaScratch| attend(&pool, &kernels, &cache, &shape, &rows, &mut out, scratch);
    let rows = QueryRows { q: &q, iq: &iq, first_pos: 18, n: 2, dense: false };
    assert_eq!(call(rows, &mut scratch), Ok(()));
    assert_eq!(call(QueryRows { first_pos: 19, ..rows }, &mut scratch), Err(QsaError::Beyond { last: 20, len: 20 }));
    assert!(matches!(call(QueryRows { q: &q[1..], ..rows }, &mut scratch), Err(QsaError::Length { field: "q", .. })));
    for (rows_made, cells) in [(1, 20), (2, 19)] {
        let mut small = QsaScratch::new(&shape, rows_made, cells, 1).unwrap();
        assert!(matches!(call(rows, &mut small), Err(QsaError::Scratch { .. })));
    }
    let other = QsaShape::new(4, 2, 256, 3, 128, 512, 1e-6).unwrap();
    assert_eq!(call(rows, &mut QsaScratch::new(&other, 2, 20, 1).unwrap()), Err(QsaError::OtherShape));
}
