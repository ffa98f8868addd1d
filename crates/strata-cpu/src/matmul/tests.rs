//! Products against the scalar definition, by bits.

use super::*;
use crate::pool::Pool;
use half::f16;
use strata_ops::matmul::{Acts, CHAINS_NARROW, CHAINS_WIDE, Forms, act_form, dot_row};

/// A small generator of random bytes and floats.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in -1..1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }
}

/// What kind of numbers a case has.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Plain,
    /// Codes, sub-scales and activations at their ends.
    Extreme,
    /// Scales and activations so small that products are subnormal.
    Subnormal,
    /// Some blocks with scale 0, some rows of zero activations.
    Zeros,
}

const KINDS: [Kind; 4] = [Kind::Plain, Kind::Extreme, Kind::Subnormal, Kind::Zeros];

/// Where the `f16` scales of a block are.
fn scale_offsets(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q6_K => &[208],
        _ => &[0],
    }
}

/// Random rows of blocks with finite scales.
fn weights(rng: &mut Rng, dtype: DType, rows: usize, cols: usize, kind: Kind) -> Vec<u8> {
    let bytes = dtype.row_bytes(cols).unwrap() * rows;
    let tiny = kind == Kind::Subnormal;
    if dtype.is_float() {
        let float = |rng: &mut Rng| if tiny { rng.float() * 1e-22 } else { rng.float() };
        let mut out = Vec::with_capacity(bytes);
        for _ in 0..rows * cols {
            let v = if kind == Kind::Zeros && rng.below(3) == 0 { -0.0 } else { float(rng) };
            match dtype {
                DType::F32 => out.extend(v.to_le_bytes()),
                DType::F16 => out.extend(f16::from_f32(if tiny { v * 1e16 } else { v }).to_le_bytes()),
                _ => out.extend(half::bf16::from_f32(v).to_le_bytes()),
            }
        }
        return out;
    }
    let ends = [0x80, 0x7f, 0xff, 0x00, 0x81];
    let mut out: Vec<u8> = (0..bytes)
        .map(|_| if kind == Kind::Extreme { ends[rng.below(8).saturating_sub(3)] } else { rng.next() as u8 })
        .collect();
    for block in out.chunks_exact_mut(dtype.block_bytes()) {
        for &at in scale_offsets(dtype) {
            let d = match kind {
                Kind::Subnormal => f16::from_bits(rng.below(1200) as u16 | (rng.below(2) as u16) << 15),
                Kind::Zeros if rng.below(3) == 0 => f16::from_f32(-0.0),
                Kind::Extreme => f16::from_f32(65504.0 * rng.float().signum()),
                _ => f16::from_f32(rng.float() * 0.01),
            };
            block[at..at + 2].copy_from_slice(&d.to_le_bytes());
        }
    }
    out
}

fn activations(rng: &mut Rng, rows: usize, cols: usize, kind: Kind) -> Vec<f32> {
    let mut x = Vec::with_capacity(rows * cols);
    for _ in 0..rows {
        let zero = kind == Kind::Zeros && rng.below(3) == 0;
        x.extend((0..cols).map(|_| match kind {
            _ if zero => 0.0,
            Kind::Extreme => [127.0, -127.0, 126.4][rng.below(3)],
            Kind::Subnormal => rng.float() * 2f32.powi(-95 - rng.below(8) as i32),
            _ => rng.float() * 3.0,
        }));
    }
    x
}

fn prepared(simd: Simd, x: &[f32], rows: usize, cols: usize, dtype: DType) -> Acts {
    let mut acts = Acts::new(rows, cols, Forms::of([dtype]));
    prepare(&Pool::new(1), simd, x, rows, &mut acts);
    acts
}

/// The definition.
fn reference(dtype: DType, bytes: &[u8], rows: usize, acts: &Acts, n: usize) -> Vec<f32> {
    let row_bytes = bytes.len() / rows;
    (0..n).flat_map(|t| (0..rows).map(move |r| dot_row(dtype, &bytes[r * row_bytes..][..row_bytes], acts, t))).collect()
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
    let pool = Pool::new(1);
    let mut rng = Rng(1);
    for dtype in DType::all() {
        for case in 0..72 {
            let kind = KINDS[case % 4];
            let unit = dtype.block_len();
            // block counts 1..=40, or element counts for floats
            let cols = if unit == 1 { 1 + rng.below(90) } else { unit * (1 + rng.below(if unit == 32 { 40 } else { 13 })) };
            let rows = 1 + rng.below(41);
            let n = [1, 2, 3, 4, 5, 6, 7, 8, 9, 33][rng.below(10)];
            let bytes = weights(&mut rng, dtype, rows, cols, kind);
            let x = activations(&mut rng, n, cols, kind);
            let acts = prepared(Simd::Scalar, &x, n, cols, dtype);
            let expected = reference(dtype, &bytes, rows, &acts, n);
            for simd in Simd::available() {
                let w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), simd).unwrap();
                let mut out = vec![f32::NAN; n * rows];
                matmul(&pool, &w, &acts, n, &mut out);
                assert_same(&out, &expected, format_args!("{dtype} {} {kind:?} {rows}x{cols}, {n} rows", simd.name()));
            }
        }
    }
}

#[test]
fn wide_rows() {
    let pool = Pool::new(1);
    let mut rng = Rng(2);
    for dtype in DType::all() {
        for (rows, cols, n) in [(19, 10_240, 3), (8, 7_680, 9)] {
            let bytes = weights(&mut rng, dtype, rows, cols, Kind::Plain);
            let x = activations(&mut rng, n, cols, Kind::Plain);
            let acts = prepared(Simd::Scalar, &x, n, cols, dtype);
            let expected = reference(dtype, &bytes, rows, &acts, n);
            for simd in Simd::available() {
                let w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), simd).unwrap();
                let mut out = vec![f32::NAN; n * rows];
                matmul(&pool, &w, &acts, n, &mut out);
                assert_same(&out, &expected, format_args!("{dtype} {} {rows}x{cols}", simd.name()));
            }
        }
    }
}

#[test]
fn threads_and_tiles_do_not_change_bits() {
    let mut rng = Rng(3);
    for dtype in [DType::Q8_0, DType::Q4_K, DType::BF16, DType::IQ4_NL] {
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
    let mut rng = Rng(4);
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
    let mut rng = Rng(5);
    for (dtype, rows, cols) in
        [(DType::Q8_0, 64, 256), (DType::Q8_0, 20, 96), (DType::Q6_K, 24, 512), (DType::F16, 7, 33), (DType::Q4_0, 13, 64)]
    {
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
    let mut rng = Rng(6);
    let forms = Forms::of(DType::all());
    for (rows, cols) in [(1, 256), (5, 1000), (150, 512), (3, 40)] {
        let x = activations(&mut rng, rows, cols, Kind::Plain);
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

/// A dot product in f64 over the decoded weights and the quantised activations, with the sum of magnitudes.
fn exact(dtype: DType, row: &[u8], acts: &Acts, t: usize, cols: usize) -> (f64, f64) {
    let mut w = vec![0.0; cols];
    strata_quant::dequantize(dtype, row, &mut w).unwrap();
    let a = |i: usize| match act_form(dtype) {
        strata_ops::matmul::ActForm::F32 => f64::from(acts.f32_row(t)[i]),
        strata_ops::matmul::ActForm::Q32 => f64::from(acts.codes32(t)[i]) * f64::from(acts.scales32(t)[i / 32]),
        strata_ops::matmul::ActForm::Q256 => f64::from(acts.codes256(t)[i]) * f64::from(acts.scales256(t)[i / 256]),
    };
    w.iter().enumerate().fold((0.0, 0.0), |(sum, size), (i, w)| {
        let p = f64::from(*w) * a(i);
        (sum + p, size + p.abs())
    })
}

#[test]
fn the_error_against_f64_is_small() {
    let mut rng = Rng(7);
    for dtype in DType::all() {
        let mut worst = 0f64;
        for _ in 0..12 {
            let (rows, cols, n) = (9, 256 * (1 + rng.below(10)), 2);
            let bytes = weights(&mut rng, dtype, rows, cols, Kind::Plain);
            let x = activations(&mut rng, n, cols, Kind::Plain);
            let acts = prepared(Simd::best(), &x, n, cols, dtype);
            let w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), Simd::best()).unwrap();
            let mut out = vec![f32::NAN; n * rows];
            matmul(&Pool::new(1), &w, &acts, n, &mut out);
            for (i, y) in out.iter().enumerate() {
                let row_bytes = bytes.len() / rows;
                let (sum, size) = exact(dtype, &bytes[i % rows * row_bytes..][..row_bytes], &acts, i / rows, cols);
                worst = worst.max((f64::from(*y) - sum).abs() / size);
            }
        }
        // a share of the sum of magnitudes: a few roundings of 6e-8 each
        assert!(worst < 2e-7, "{dtype}: {worst:e}");
        assert!(worst > 0.0, "{dtype}: an f32 sum without any rounding is not believable");
    }
}

/// Q8_0 with the chains in another order or number: a product's bits must differ, or the parity tests could not see a
/// wrong order.
#[test]
fn another_order_of_chains_is_seen() {
    let mut rng = Rng(8);
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
