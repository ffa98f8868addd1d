use super::*;
use crate::parity::rng::Rng;
use strata_ops::rope::RopeScaling;

fn shape() -> QsaShape {
    QsaShape::new(4, 2, 256, 4, 128, 4, 1e-6).unwrap()
}

/// New cells of a sequence, kept to append again.
struct Source {
    k: Vec<f32>,
    v: Vec<f32>,
    index_k: Vec<f32>,
    gain: Vec<f32>,
    rope: RopeTable,
}

impl Source {
    fn new(cells: usize) -> Source {
        let mut rng = Rng::new(cells as u64);
        Source {
            k: rng.normals(cells * 512, 1.0),
            v: rng.normals(cells * 512, 3.0),
            index_k: rng.normals(cells * 128, 0.5),
            gain: rng.normals(128, 1.0),
            rope: RopeTable::new(cells, 64, 1e7, RopeScaling::None),
        }
    }

    fn append(&self, pool: &Pool, cache: &mut QsaCache, n: usize) {
        let r = cache.len()..cache.len() + n;
        let new = NewCells {
            k: &self.k[r.start * 512..r.end * 512],
            v: &self.v[r.start * 512..r.end * 512],
            index_k: &self.index_k[r.start * 128..r.end * 128],
            n,
        };
        cache.append(pool, &new, &IndexNorm { gain: &self.gain, eps: 1e-6, rope: &self.rope }).unwrap();
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Everything that a reader of the cache can see, and the raw keys of the open block.
fn visible(c: &QsaCache) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut rows = Vec::new();
    for cell in 0..c.len {
        for h in 0..c.kv_heads {
            for side in [c.rows().k, c.rows().v] {
                let mut x = [0.0; HEAD_DIM];
                side.decode(row_of(cell, h, c.kv_heads), &mut x);
                rows.push(bits(&x));
            }
        }
    }
    let raw: Vec<_> = (c.len / BLOCK * BLOCK..c.len).map(|i| bits(&c.ring[i % RAW_RING * INDEX_DIM..][..INDEX_DIM])).collect();
    (c.len, rows, bits(c.pooled()), bits(&c.dead), raw)
}

#[test]
fn many_cells_at_once_are_the_same_as_one_by_one() {
    let source = Source::new(330);
    for kind in KvKind::ALL {
        let mut one = QsaCache::new(&shape(), kind, 331).unwrap();
        let pool = Pool::new(1);
        (0..330).for_each(|_| source.append(&pool, &mut one, 1));
        for (threads, split) in [(1, &[330][..]), (3, &[330]), (2, &[1, 2, 3, 200, 5, 119]), (1, &[7, 0, 129, 194])] {
            let (pool, mut many) = (Pool::new(threads), QsaCache::new(&shape(), kind, 331).unwrap());
            split.iter().for_each(|n| source.append(&pool, &mut many, *n));
            assert_eq!(visible(&many), visible(&one), "{kind:?} {split:?}");
        }
    }
}

#[test]
fn pooled_keys_follow_the_definition() {
    let (source, pool) = (Source::new(64), Pool::new(1));
    let mut cache = QsaCache::new(&shape(), KvKind::F16, 64).unwrap();
    source.append(&pool, &mut cache, 39);
    assert_eq!(cache.pooled().len(), 9 * 128);
    for b in 0..9 {
        let mut want: Vec<f32> = (0..128)
            .map(|i| {
                let k = |j: usize| source.index_k[(4 * b + j) * 128 + i];
                ((k(0) + k(1)) + (k(2) + k(3))) * 0.25
            })
            .collect();
        strata_ops::norm::rms_norm_in_place(&mut want, &source.gain, 1e-6);
        let (cos, sin) = source.rope.at(4 * b);
        strata_ops::rope::rotate(&mut want, cos, sin);
        assert_eq!(bits(&want), bits(&cache.pooled()[b * 128..(b + 1) * 128]));
    }
    let mut want = source.index_k[..128].to_vec();
    strata_ops::norm::rms_norm_in_place(&mut want, &source.gain, 1e-6);
    assert_eq!(bits(&want), bits(cache.dead()));
}

#[test]
fn a_cut_sequence_continues_as_if_never_longer() {
    let (source, pool) = (Source::new(600), Pool::new(2));
    let wrong = Source::new(601);
    for kind in [KvKind::Int8, KvKind::Q4_0] {
        let mut straight = QsaCache::new(&shape(), kind, 600).unwrap();
        source.append(&pool, &mut straight, 400);
        for back in 0..=40 {
            // cells beyond the kept ones are of another text
            let mut cache = QsaCache::new(&shape(), kind, 600).unwrap();
            source.append(&pool, &mut cache, 333);
            wrong.append(&pool, &mut cache, back);
            cache.truncate(333).unwrap();
            wrong.append(&pool, &mut cache, 1);
            cache.truncate(330).unwrap();
            source.append(&pool, &mut cache, 70);
            assert_eq!(visible(&cache), visible(&straight), "{kind:?} {back}");
        }
    }
}

#[test]
fn cuts_reach_as_far_as_the_raw_keys() {
    let (source, pool) = (Source::new(600), Pool::new(1));
    let mut cache = QsaCache::new(&shape(), KvKind::K8V4, 600).unwrap();
    source.append(&pool, &mut cache, 402);
    // cells 274.. have raw keys; block 272.. is not whole there
    let gone = QsaError::Cut { len: 402, to: 275, raw_from: 274 };
    assert_eq!(cache.truncate(275), Err(gone));
    assert_eq!(cache.truncate(403), Err(QsaError::Cut { len: 402, to: 403, raw_from: 274 }));
    let mut at_277 = cache.clone();
    at_277.truncate(277).unwrap();
    // whole blocks need no raw keys
    for to in [200, 0] {
        let mut c = cache.clone();
        c.truncate(to).unwrap();
        source.append(&pool, &mut c, 402 - to);
        assert_eq!(visible(&c), visible(&cache));
    }
    cache.truncate(200).unwrap();
    assert_eq!(cache.truncate(199), Err(QsaError::Cut { len: 200, to: 199, raw_from: 200 }));
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let (source, pool) = (Source::new(16), Pool::new(1));
    let mut cache = QsaCache::new(&shape(), KvKind::Int8, 14).unwrap();
    source.append(&pool, &mut cache, 6);
    let norm = IndexNorm { gain: &source.gain, eps: 1e-6, rope: &source.rope };
    let mut new = NewCells { k: &source.k[..9 * 512], v: &source.v[..9 * 512], index_k: &source.index_k[..9 * 128], n: 9 };
    assert_eq!(cache.append(&pool, &new, &norm), Err(QsaError::Full { capacity: 14, len: 6, more: 9 }));
    new.n = 8;
    assert_eq!(cache.append(&pool, &new, &norm), Err(QsaError::Length { field: "k", found: 9 * 512, expected: 8 * 512 }));
    (new.k, new.v, new.index_k) = (&source.k[..8 * 512], &source.v[..8 * 512], &source.index_k[..8 * 128]);
    let short = RopeTable::new(8, 64, 1e7, RopeScaling::None);
    let refused = cache.append(&pool, &new, &IndexNorm { rope: &short, ..norm });
    assert_eq!(refused, Err(QsaError::Position { position: 8, positions: 8 }));
    assert_eq!(cache.len(), 6);
    let huge = QsaCache::new(&shape(), KvKind::F32, usize::MAX / 2).unwrap_err();
    assert!(matches!(huge, QsaError::TooLarge { .. }), "{huge}");
    let wide = QsaShape::new(256, 256, 256, 1, 128, 1, 1e-6).unwrap();
    assert!(matches!(QsaCache::new(&wide, KvKind::F32, i32::MAX as usize - 4), Err(QsaError::TooLarge { .. })));
}
