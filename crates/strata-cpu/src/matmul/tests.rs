//! Products against the scalar definition, by bits.

use super::parity::{KINDS, Kind, activations, matmul_parity_of, reference, weights};
use super::*;
use crate::parity::Arm;
use crate::parity::rng::Rng;
use crate::pool::Pool;
use half::f16;
use strata_ops::matmul::{Acts, CHAINS_NARROW, CHAINS_WIDE, Forms, TINY, dot_row};

fn prepared(simd: Simd, x: &[f32], rows: usize, cols: usize, dtype: DType) -> Acts {
    let mut acts = Acts::new(rows, cols, Forms::of([dtype]));
    prepare(&Pool::new(1), simd, x, rows, &mut acts);
    acts
}

#[track_caller]
fn assert_same(found: &[f32], expected: &[f32], what: std::fmt::Arguments<'_>) {
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert_eq!(f.to_bits(), e.to_bits(), "{what}: output {i}: {f:e} instead of {e:e}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn every_level_gives_the_bits_of_the_definition() {
    let mut levels = 0;
    matmul_parity_of(Arm::Fast, false, &mut |c| {
        assert_eq!(c.differing, 0, "{c:?}");
        // an f32 sum without any rounding is not believable
        assert!(c.compared > 10_000 && c.max_err64.is_some_and(|e| e > 0.0), "{c:?}");
        levels += 1;
    });
    assert_eq!(levels, Simd::available().len() * DType::all().count());
}

/// Codebooks are permuted in one of two ways, by the maker of the CPU: here both, whatever the CPU is.
#[cfg(target_arch = "x86_64")]
#[test]
fn both_ways_to_permute_give_the_bits_of_the_definition() {
    if Simd::best() < Simd::Avx512Vbmi {
        return println!("this CPU does not permute bytes: not tested");
    }
    let mut rng = Rng::new(9);
    let books = [DType::IQ1_S, DType::IQ1_M, DType::IQ2_XXS, DType::IQ2_XS, DType::IQ2_S, DType::IQ3_XXS, DType::IQ3_S];
    for (dtype, (rows, cols, n)) in books.into_iter().flat_map(|d| [(d, (40, 512, 1)), (d, (11, 1280, 3)), (d, (5, 256, 12))]) {
        for kind in KINDS {
            let bytes = weights(&mut rng, dtype, rows, cols, kind);
            let acts = prepared(Simd::best(), &activations(&mut rng, n, cols, kind), n, cols, dtype);
            let expected = reference(dtype, &bytes, rows, &acts, n);
            for two in [false, true] {
                let mut w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), Simd::best()).unwrap();
                w.kernel = x86::pick(dtype, Simd::best(), two).unwrap();
                let mut out = vec![f32::NAN; n * rows];
                matmul(&Pool::new(1), &w, &acts, n, &mut out);
                assert_same(&out, &expected, format_args!("{dtype} {rows}x{cols}, {n} rows, {kind:?}, two {two}"));
            }
        }
    }
}

#[test]
fn the_suite_sees_swapped_chains() {
    let mut broken = 0;
    matmul_parity_of(Arm::Broken, false, &mut |c| broken += c.differing);
    assert!(broken > 100, "{broken}");
}

#[test]
fn threads_and_tiles_do_not_change_bits() {
    let mut rng = Rng::new(3);
    for dtype in [DType::Q8_0, DType::Q4_K, DType::BF16, DType::IQ4_NL, DType::IQ3_S, DType::Q2_0, DType::NVFP4] {
        for (rows, cols, n) in [(1024, 256, 1), (333, 512, 70), (96, 1024, 300), (2000, 256, 2)] {
            let bytes = weights(&mut rng, dtype, rows, cols, Kind::Plain);
            let x = activations(&mut rng, n, cols, Kind::Plain);
            let mut first: Option<Vec<f32>> = None;
            for threads in 1..=3 {
                let pool = Pool::new(threads);
                let mut acts = Acts::new(n, cols, Forms::of([dtype]));
                prepare(&pool, Simd::best(), &x, n, &mut acts);
                let w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), Simd::best()).unwrap();
                let (mut out, mut twin) = (vec![f32::NAN; n * rows], vec![f32::NAN; n * rows]);
                matmul_many(&pool, &acts, n, [(&w, &mut out[..]), (&w, &mut twin[..])]);
                assert_same(&twin, &out, format_args!("{dtype}, second of a job"));
                let first = first.get_or_insert_with(|| {
                    assert_same(&out, &reference(dtype, &bytes, rows, &acts, n), format_args!("{dtype} {rows}x{cols}, {n} rows"));
                    out.clone()
                });
                assert_same(&out, first, format_args!("{dtype}, {threads} threads"));
            }
        }
    }
}

#[test]
fn many_matrices_in_one_call() {
    let pool = Pool::new(2);
    let mut rng = Rng::new(4);
    let (cols, n) = (256, 3);
    let x = activations(&mut rng, n, cols, Kind::Plain);
    let dtypes: Vec<DType> = DType::all().chain(DType::all()).collect();
    let mut acts = Acts::new(n, cols, Forms::of(dtypes.iter().copied()));
    prepare(&pool, Simd::best(), &x, n, &mut acts);
    let bytes: Vec<Vec<u8>> = dtypes.iter().enumerate().map(|(i, d)| weights(&mut rng, *d, 40 + i, cols, Kind::Plain)).collect();
    let matrices: Vec<Matrix> = dtypes
        .iter()
        .zip(&bytes)
        .enumerate()
        .map(|(i, (d, b))| Matrix::new(*d, 40 + i, cols, Bytes::from(b.clone()), Simd::best()).unwrap())
        .collect();
    let mut outs: Vec<Vec<f32>> = matrices.iter().map(|w| vec![f32::NAN; n * w.rows()]).collect();
    matmul_many(&pool, &acts, n, matrices.iter().zip(outs.iter_mut().map(|o| &mut o[..])));
    for ((w, b), out) in matrices.iter().zip(&bytes).zip(&outs) {
        assert_same(out, &reference(w.dtype(), b, w.rows(), &acts, n), format_args!("{}", w.dtype()));
    }
}

#[test]
fn experts_go_where_their_items_say() {
    let mut rng = Rng::new(5);
    for (dtype, rows, cols) in [
        (DType::Q8_0, 64, 256),
        (DType::Q8_0, 20, 96),
        (DType::Q6_K, 24, 512),
        (DType::F16, 7, 33),
        (DType::Q4_0, 13, 64),
        (DType::IQ3_S, 18, 512),
        (DType::IQ2_XS, 9, 256),
        (DType::Q5_1, 11, 640),
        (DType::Q2_0, 10, 640),
        (DType::IQ1_M, 9, 256),
    ] {
        for (experts, tokens, ranks) in [(6, 1, 2), (24, 40, 4)] {
            let x = activations(&mut rng, tokens, cols, Kind::Plain);
            let acts = prepared(Simd::best(), &x, tokens, cols, dtype);
            let stacks: [Vec<u8>; 2] = std::array::from_fn(|_| weights(&mut rng, dtype, experts * rows, cols, Kind::Plain));
            let choice: Vec<usize> = (0..tokens).flat_map(|t| (0..ranks).map(move |k| (t * 7 + k * 5) % experts)).collect();
            let (mut groups, mut act_rows, mut out_rows) = (vec![], vec![], vec![]);
            for e in 0..experts {
                let start = act_rows.len() as u32;
                for (slot, _) in choice.iter().enumerate().filter(|(_, c)| **c == e) {
                    act_rows.push((slot / ranks) as u32);
                    out_rows.push(slot as u32);
                }
                if act_rows.len() as u32 > start {
                    groups.push(ExpertGroup { expert: e as u32, start, end: act_rows.len() as u32 });
                }
            }
            let row_bytes = dtype.row_bytes(cols).unwrap();
            for (simd, threads) in Simd::available().into_iter().flat_map(|s| [(s, 1), (s, 3)]) {
                let pool = Pool::new(threads);
                let m = stacks.each_ref().map(|b| Matrix::new(dtype, experts * rows, cols, Bytes::from(b.clone()), simd).unwrap());
                let mut outs = [vec![f32::NAN; tokens * ranks * rows], vec![f32::NAN; tokens * ranks * rows]];
                let [gate, up] = &mut outs;
                let mut jobs = [ExpertStack { w: &m[0], rows, out: gate }, ExpertStack { w: &m[1], rows, out: up }];
                matmul_experts(&pool, &mut jobs, &groups, &act_rows, &out_rows, &acts);
                for (bytes, out) in stacks.iter().zip(&outs) {
                    for (slot, e) in choice.iter().enumerate() {
                        let expected: Vec<f32> = (0..rows)
                            .map(|r| dot_row(dtype, &bytes[(e * rows + r) * row_bytes..][..row_bytes], &acts, slot / ranks))
                            .collect();
                        assert_same(&out[slot * rows..][..rows], &expected, format_args!("{dtype} {} expert {e}", simd.name()));
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "two items write output row 3")]
fn experts_may_not_share_an_output() {
    let w = Matrix::new(DType::F32, 4, 1, Bytes::from(vec![0; 16]), Simd::Scalar).unwrap();
    let acts = prepared(Simd::Scalar, &[1.0], 1, 1, DType::F32);
    let mut out = vec![0.0; 16];
    let groups = [ExpertGroup { expert: 0, start: 0, end: 1 }, ExpertGroup { expert: 1, start: 1, end: 2 }];
    matmul_experts(&Pool::new(1), &mut [ExpertStack { w: &w, rows: 2, out: &mut out }], &groups, &[0, 0], &[3, 3], &acts);
}

#[test]
fn preparing_gives_the_same_codes_everywhere() {
    let mut rng = Rng::new(6);
    let forms = Forms::of(DType::all());
    let shapes = [(1, 256), (5, 1000), (150, 512), (3, 40)];
    for ((rows, cols), kind) in shapes.into_iter().flat_map(|s| KINDS.map(|k| (s, k))) {
        let mut x = activations(&mut rng, rows, cols, kind);
        // of a block alone: the least that is not zero, what is below, a half, infinity
        x[0..32].fill(0.0);
        x[7] = [TINY, f32::from_bits(TINY.to_bits() - 1), 0.5, f32::NEG_INFINITY][kind as usize];
        let mut first = Acts::new(rows, cols, forms);
        first.rows_mut(rows).fill(&x);
        for (simd, threads) in Simd::available().into_iter().flat_map(|s| [(s, 1), (s, 3)]) {
            let mut acts = Acts::new(rows + 2, cols, forms);
            prepare(&Pool::new(threads), simd, &x, rows, &mut acts);
            for t in 0..rows {
                assert_eq!(acts.f32_row(t), first.f32_row(t));
                assert_eq!(acts.codes32(t), first.codes32(t));
                assert_same(acts.scales32(t), first.scales32(t), format_args!("scales"));
                assert_eq!(acts.sums32(t), first.sums32(t));
                assert_eq!(acts.codes256(t), first.codes256(t));
                assert_same(acts.scales256(t), first.scales256(t), format_args!("scales"));
                assert_eq!(acts.sums256(t), first.sums256(t));
            }
        }
    }
}

/// Q8_0 with the chains in another order or number: a product's bits must differ, or the parity tests could not see a
/// wrong order.
#[test]
fn another_order_of_chains_is_seen() {
    let mut rng = Rng::new(8);
    let (rows, cols) = (64, 32 * 40);
    assert_eq!((CHAINS_NARROW, CHAINS_WIDE), (8, 4));
    for _ in 0..20 {
        let bytes = weights(&mut rng, DType::Q8_0, rows, cols, Kind::Plain);
        let x = activations(&mut rng, 1, cols, Kind::Plain);
        let acts = prepared(Simd::Scalar, &x, 1, cols, DType::Q8_0);
        let y = reference(DType::Q8_0, &bytes, rows, &acts, 1);
        let differ = |chains, order: fn(usize) -> usize| {
            let twin = bytes.chunks_exact(bytes.len() / rows).map(|row| chained(row, &acts, chains, order));
            twin.zip(&y).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
        };
        assert_eq!(differ(8, |c| c), 0);
        assert!(differ(8, |c| [0, 2, 1, 3, 4, 5, 6, 7][c]) > 0, "chains 1 and 2 swapped");
        assert!(differ(4, |c| c) > rows / 2, "4 chains instead of 8");
    }
}

fn chained(row: &[u8], acts: &Acts, chains: usize, order: impl Fn(usize) -> usize) -> f32 {
    let blocks = row.as_chunks::<34>().0;
    let chain = |c: usize| {
        (c * blocks.len() / chains..(c + 1) * blocks.len() / chains).fold(0f32, |chain, s| {
            let isum: i32 = (0..32).map(|i| i32::from(blocks[s][2 + i] as i8) * i32::from(acts.codes32(0)[s * 32 + i])).sum();
            let d = f16::from_le_bytes([blocks[s][0], blocks[s][1]]).to_f32() * acts.scales32(0)[s];
            d.mul_add(isum as f32, chain)
        })
    };
    (1..chains).fold(chain(order(0)), |y, c| y + chain(order(c)))
}

#[test]
fn wrong_sizes_are_errors() {
    let new = |dtype, rows, cols, bytes| Matrix::new(dtype, rows, cols, Bytes::from(vec![0; bytes]), Simd::Scalar).err();
    assert_eq!(new(DType::Q8_0, 2, 40, 68), Some(MatrixError::Width { dtype: DType::Q8_0, cols: 40 }));
    assert_eq!(new(DType::Q8_0, 2, 32, 67), Some(MatrixError::Bytes { dtype: DType::Q8_0, rows: 2, cols: 32, expected: 68, found: 67 }));
    assert!(new(DType::Q4_K, usize::MAX, 256, 144).is_some());
    assert_eq!(new(DType::Q4_K, 0, 256, 0), None);
    assert_eq!(new(DType::Q8_0, 1, 32, 33).unwrap().to_string(), "1 x 32 values of Q8_0 take 34 bytes, found 33");
}

#[test]
fn table_rows() {
    let values: Vec<f32> = (0..48).map(|i| i as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let table = Table::new(DType::F32, 3, 16, Bytes::from(bytes)).unwrap();
    let mut out = [0.0; 32];
    table.gather(&[2, 0], &mut out);
    assert_eq!(out[..16], values[32..]);
    assert_eq!(out[16..], values[..16]);
}
