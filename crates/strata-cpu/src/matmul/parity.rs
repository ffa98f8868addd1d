//! Parity suite of the products: every format at every level against the definition.

use super::{Matrix, matmul, prepare};
use crate::parity::rng::Rng;
use crate::parity::{Arm, CaseReport};
use crate::pool::Pool;
use crate::simd::Simd;
use bytes::Bytes;
use half::{bf16, f16};
use strata_ops::matmul::{ActForm, Acts, CHAINS_NARROW, Forms, act_form, dot_row, segment};
use strata_quant::testing::put_scales;
use strata_quant::{DType, half_at};

/// Largest error against f64 as a share of the largest output of a case.
const GATE: f64 = 2e-6;

/// What kind of numbers a case has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    Plain,
    /// Codes, sub-scales and activations at their ends.
    Extreme,
    /// Scales and activations so small that products are subnormal.
    Subnormal,
    /// Some blocks with scale 0, some rows of zero activations.
    Zeros,
}

/// Every kind of numbers.
pub(super) const KINDS: [Kind; 4] = [Kind::Plain, Kind::Extreme, Kind::Subnormal, Kind::Zeros];

/// Uniform in -1..1.
fn float(rng: &mut Rng) -> f32 {
    rng.uniform() * 2.0 - 1.0
}

/// Random rows of blocks with finite scales.
pub(super) fn weights(rng: &mut Rng, dtype: DType, rows: usize, cols: usize, kind: Kind) -> Vec<u8> {
    let bytes = rows * dtype.row_bytes(cols).expect("whole blocks");
    if dtype.is_float() {
        let mut out = Vec::with_capacity(bytes);
        for _ in 0..rows * cols {
            let v = match kind {
                Kind::Zeros if rng.below(3) == 0 => -0.0,
                Kind::Subnormal if dtype == DType::F16 => float(rng) * 1e-6,
                Kind::Subnormal => float(rng) * 1e-22,
                _ => float(rng),
            };
            match dtype {
                DType::F32 => out.extend(v.to_le_bytes()),
                DType::F16 => out.extend(f16::from_f32(v).to_le_bytes()),
                _ => out.extend(bf16::from_f32(v).to_le_bytes()),
            }
        }
        return out;
    }
    let ends = [0x80, 0x7f, 0xff, 0x00, 0x81];
    let byte = |rng: &mut Rng| if kind == Kind::Extreme { ends[rng.below(8).saturating_sub(3)] } else { rng.bits() as u8 };
    let mut out: Vec<u8> = (0..bytes).map(|_| byte(rng)).collect();
    put_scales(dtype, &mut out, || match kind {
        Kind::Subnormal => f16::from_bits(rng.below(1200) as u16 | (rng.below(2) as u16) << 15),
        Kind::Zeros if rng.below(3) == 0 => f16::from_f32(-0.0),
        Kind::Extreme => f16::from_f32(65504.0 * float(rng).signum()),
        _ => f16::from_f32(float(rng) * 0.01),
    });
    out
}

/// Random rows of activations.
pub(super) fn activations(rng: &mut Rng, rows: usize, cols: usize, kind: Kind) -> Vec<f32> {
    let mut x = Vec::with_capacity(rows * cols);
    for _ in 0..rows {
        let zero = kind == Kind::Zeros && rng.below(3) == 0;
        x.extend((0..cols).map(|_| match kind {
            _ if zero => 0.0,
            Kind::Extreme => [127.0, -127.0, 126.4][rng.below(3)],
            Kind::Subnormal => float(rng) * 2f32.powi(-95 - rng.below(8) as i32),
            _ => float(rng) * 3.0,
        }));
    }
    x
}

/// The definition.
pub(super) fn reference(dtype: DType, bytes: &[u8], rows: usize, acts: &Acts, n: usize) -> Vec<f32> {
    let row_bytes = bytes.len() / rows;
    (0..n).flat_map(|t| (0..rows).map(move |r| dot_row(dtype, &bytes[r * row_bytes..][..row_bytes], acts, t))).collect()
}

/// A dot product in f64 over the decoded weights and the prepared activations.
fn exact(dtype: DType, row: &[u8], acts: &Acts, t: usize) -> f64 {
    let mut w = vec![0.0; acts.cols()];
    strata_quant::dequantize(dtype, row, &mut w).expect("a whole row");
    let a = |i: usize| match act_form(dtype) {
        ActForm::F32 => f64::from(acts.f32_row(t)[i]),
        ActForm::Q32 => f64::from(acts.codes32(t)[i]) * f64::from(acts.scales32(t)[i / 32]),
        ActForm::Q256 => f64::from(acts.codes256(t)[i]) * f64::from(acts.scales256(t)[i / 256]),
    };
    w.iter().enumerate().map(|(i, w)| f64::from(*w) * a(i)).sum()
}

/// Q8_0 with chains 1 and 2 swapped.
fn swapped(row: &[u8], acts: &Acts, t: usize) -> f32 {
    let blocks = row.as_chunks::<34>().0;
    let chain = |c: usize| {
        segment(c, blocks.len(), CHAINS_NARROW).fold(0f32, |chain, s| {
            let a = &acts.codes32(t)[s * 32..][..32];
            let isum: i32 = blocks[s][2..].iter().zip(a).map(|(&w, &a)| i32::from(w as i8) * i32::from(a)).sum();
            (half_at(&blocks[s], 0) * acts.scales32(t)[s]).mul_add(isum as f32, chain)
        })
    };
    [2, 1, 3, 4, 5, 6, 7].into_iter().fold(chain(0), |y, c| y + chain(c))
}

/// A matrix shape, the number of activation rows and the kind of numbers.
struct Shape {
    rows: usize,
    cols: usize,
    n: usize,
    kind: Kind,
}

/// The shape of a case: block counts 1..=40 (13 for 256-wide blocks), then a few wide rows.
fn shape(rng: &mut Rng, dtype: DType, case: u64) -> Shape {
    let kind = KINDS[case as usize % KINDS.len()];
    let unit = dtype.block_len();
    match case % 24 {
        8 => Shape { rows: 19, cols: 10_240, n: 3, kind },
        20 => Shape { rows: 9, cols: 7_680, n: 66, kind },
        // many outputs, for the error against f64
        16 => Shape { rows: 64, cols: 2_048, n: 4, kind },
        _ => Shape {
            rows: 1 + rng.below(41),
            cols: if unit == 1 { 1 + rng.below(90) } else { unit * (1 + rng.below(if unit < 256 { 40 } else { 13 })) },
            n: [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64][rng.below(12)],
            kind,
        },
    }
}

/// Products of every format at every level against the definition. `full` runs more shapes.
pub fn matmul_parity(full: bool, report: &mut dyn FnMut(CaseReport)) {
    matmul_parity_of(Arm::Fast, full, report);
}

/// [`matmul_parity`] of a chosen arm: the fast arm is every level there is.
pub fn matmul_parity_of(arm: Arm, full: bool, report: &mut dyn FnMut(CaseReport)) {
    let levels: Vec<Option<Simd>> = match arm {
        Arm::Fast => Simd::available().into_iter().map(Some).collect(),
        Arm::Level(l) => vec![Some(l)],
        Arm::Broken => vec![None],
    };
    let pools = [Pool::new(1), Pool::new(3)];
    for dtype in DType::all().filter(|d| arm != Arm::Broken || *d == DType::Q8_0) {
        let mut reports: Vec<CaseReport> = levels
            .iter()
            .map(|l| format!("{dtype} {}", l.map_or("broken", Simd::name)))
            .map(|case| CaseReport { suite: "matmul_parity", case, compared: 0, differing: 0, max_err64: None })
            .collect();
        for case in 0..if full { 480 } else { 72 } {
            let mut rng = Rng::new(case);
            let Shape { rows, cols, n, kind } = shape(&mut rng, dtype, case);
            let bytes = weights(&mut rng, dtype, rows, cols, kind);
            let row = |r: usize| &bytes[bytes.len() / rows * r..][..bytes.len() / rows];
            let x = activations(&mut rng, n, cols, kind);
            let mut acts = Acts::new(n, cols, Forms::of([dtype]));
            acts.rows_mut(n).fill(&x);
            let expected = reference(dtype, &bytes, rows, &acts, n);
            for (level, c) in levels.iter().zip(&mut reports) {
                let mut out = vec![f32::NAN; n * rows];
                if let Some(simd) = *level {
                    let pool = &pools[case as usize % 2];
                    let w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), simd).expect("sizes agree");
                    prepare(pool, simd, &x, n, &mut acts);
                    matmul(pool, &w, &acts, n, &mut out);
                } else {
                    out.iter_mut().enumerate().for_each(|(i, y)| *y = swapped(row(i % rows), &acts, i / rows));
                }
                c.compared += out.len() as u64;
                c.differing += out.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as u64;
                if case % 24 != 16 {
                    continue;
                }
                let values: Vec<f64> = (0..out.len()).map(|i| exact(dtype, row(i % rows), &acts, i / rows)).collect();
                let scale = values.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
                let error = out.iter().zip(&values).map(|(y, v)| (f64::from(*y) - v).abs() / scale).fold(0.0, f64::max);
                c.max_err64 = Some(c.max_err64.unwrap_or(0.0).max(error));
                // an error above the gate is a difference too: identical must not mean identically wrong
                c.differing += u64::from(error > GATE);
            }
        }
        reports.into_iter().for_each(&mut *report);
    }
}
