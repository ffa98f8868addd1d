//! `gemm_parity`: product tiles of every format and form against `dot_row`, by bits.

use super::differing;
use crate::device::Device;
use crate::error::Result;
use crate::products::gemm::{GemmForm, GemmItems, expert_tiles, gemm, gemm_float};
use crate::products::repack::FORMATS;
use crate::products::{DeviceActs, DeviceWeights};
use strata_cpu::parity::CaseReport;
use strata_cpu::parity::rng::Rng;
use strata_ops::matmul::{ActForm, Acts, Forms, act_form, dot_row};
use strata_quant::testing::{SplitMix64, random_blocks};
use strata_quant::{DType, dequantize};

/// A shape: rows and blocks of a row, tokens, experts (0: one matrix, tokens in order).
struct Shape {
    rows: usize,
    blocks: usize,
    tokens: usize,
    experts: usize,
}

impl Shape {
    const fn new(rows: usize, blocks: usize, tokens: usize, experts: usize) -> Shape {
        Shape { rows, blocks, tokens, experts }
    }
}

/// Shapes for formats with 32-wide blocks: odd numbers of rows, tokens and blocks, fewer blocks than chains, several tiles.
const NARROW: [Shape; 4] = [Shape::new(133, 19, 35, 0), Shape::new(9, 5, 66, 0), Shape::new(5, 1, 1, 0), Shape::new(20, 24, 7, 3)];
const WIDE: [Shape; 4] = [Shape::new(133, 3, 35, 0), Shape::new(9, 9, 66, 0), Shape::new(5, 1, 1, 0), Shape::new(20, 5, 7, 3)];
/// What `full` adds.
const NARROW_FULL: [Shape; 3] = [Shape::new(640, 80, 257, 0), Shape::new(2563, 128, 130, 0), Shape::new(640, 80, 200, 16)];
const WIDE_FULL: [Shape; 3] = [Shape::new(640, 10, 257, 0), Shape::new(2563, 16, 130, 0), Shape::new(640, 10, 200, 16)];

/// Largest error against FP64, as a share of the largest output.
const GATE: f64 = 2e-6;

/// The definition's inputs of one case, and its answer.
struct Case {
    bytes: Vec<u8>,
    acts: Acts,
    act_rows: Vec<u32>,
    out_rows: Vec<u32>,
    groups: Vec<(u32, u32, u32)>,
    /// `[out rows, rows]`; rows that no item writes hold the poison.
    want: Vec<f32>,
    exact: Vec<f64>,
}

/// What outputs hold before: a NaN no product makes.
const POISON: u8 = 0xff;

fn poison() -> f32 {
    f32::from_le_bytes([POISON; 4])
}

fn case(dtype: DType, shape: &Shape) -> Case {
    let Shape { rows, blocks, tokens, experts } = *shape;
    let cols = blocks * dtype.block_len();
    let mut rng = Rng::new((u64::from(dtype.id()) << 32) + (rows * 7 + blocks * 3 + tokens) as u64);
    let matrices = experts.max(1);
    let mut bytes = random_blocks(dtype, matrices * rows * blocks, &mut SplitMix64::new(rng.bits()));
    let one = bytes.len() / matrices;
    let tiny = dtype == DType::MXFP4 && blocks == 1;
    if tiny {
        tiny_scales(&mut bytes);
    }
    let mut x = rng.normals(tokens * cols, if tiny { TINY_MEETS } else { 1.0 });
    if !tiny {
        x[..cols.min(256)].fill(0.0);
    }
    let mut acts = Acts::new(tokens, cols, Forms::of([dtype]));
    acts.rows_mut(tokens).fill(&x);
    // two experts a token; one expert has none
    let (mut act_rows, mut out_rows, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for e in 0..experts {
        let first = act_rows.len() as u32;
        for t in (0..tokens).filter(|t| e != 1 && (t % experts == e || (t + 2) % experts == e)) {
            act_rows.push(t as u32);
            out_rows.push((t * 2 + usize::from(t % experts == e)) as u32);
        }
        groups.push((e as u32, first, act_rows.len() as u32));
    }
    let out_len = if experts == 0 { tokens } else { tokens * 2 };
    let mut want = vec![poison(); out_len * rows];
    let mut exact = vec![0.0; want.len()];
    let items: Vec<(usize, usize, usize)> = if experts == 0 {
        (0..tokens).map(|t| (0, t, t)).collect()
    } else {
        groups
            .iter()
            .flat_map(|(e, a, b)| (*a..*b).map(|i| (*e as usize, act_rows[i as usize] as usize, out_rows[i as usize] as usize)))
            .collect()
    };
    let mut decoded = vec![0.0; cols];
    for m in 0..matrices {
        for r in 0..rows {
            let row = &bytes[m * one + r * one / rows..][..one / rows];
            if dequantize(dtype, row, &mut decoded).is_err() {
                continue;
            }
            for (_, act, out) in items.iter().filter(|i| i.0 == m) {
                want[out * rows + r] = dot_row(dtype, row, &acts, *act);
                exact[out * rows + r] = dot64(dtype, &decoded, &acts, *act);
            }
        }
    }
    Case { bytes, acts, act_rows, out_rows, groups, want, exact }
}

/// The dot product of decoded weights and quantised activations, in f64.
fn dot64(dtype: DType, w: &[f32], acts: &Acts, t: usize) -> f64 {
    let act = |i: usize| match act_form(dtype) {
        ActForm::F32 => f64::from(acts.f32_row(t)[i]),
        ActForm::Q32 => f64::from(acts.codes32(t)[i]) * f64::from(acts.scales32(t)[i / 32]),
        ActForm::Q256 => f64::from(acts.codes256(t)[i]) * f64::from(acts.scales256(t)[i / 256]),
    };
    w.iter().enumerate().map(|(i, w)| f64::from(*w) * act(i)).sum()
}

/// Gives blocks of MXFP4 the smallest scales, two of which are subnormal floats.
pub(super) fn tiny_scales(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(DType::MXFP4.block_bytes()).enumerate().for_each(|(i, block)| block[0] = (i % 3) as u8);
}

/// Activations for which products with such scales are normal.
pub(super) const TINY_MEETS: f32 = 1e30;

/// Sums of 16 codes, two to a word, of 256-wide activations.
pub(super) fn pairs(acts: &Acts, rows: usize) -> Vec<u32> {
    let pair = |s: &[i16]| u32::from(s[0] as u16) | u32::from(s[1] as u16) << 16;
    (0..rows).flat_map(|t| acts.sums256(t).chunks_exact(2).map(pair)).collect()
}

/// The definition's activations on the device.
fn upload(device: &Device, dtype: DType, acts: &Acts, tokens: usize) -> Result<DeviceActs> {
    let rows = 0..tokens;
    let (codes, scales, sums): (Vec<&[i8]>, Vec<&[f32]>, Vec<i32>) = if act_form(dtype) == ActForm::Q256 {
        let sums = rows.clone().flat_map(|t| acts.sums256(t).chunks_exact(2).map(|s| i32::from(s[0]) + i32::from(s[1])));
        (rows.clone().map(|t| acts.codes256(t)).collect(), rows.clone().map(|t| acts.scales256(t)).collect(), sums.collect())
    } else {
        let sums = rows.clone().flat_map(|t| acts.sums32(t).iter().copied());
        (rows.clone().map(|t| acts.codes32(t)).collect(), rows.clone().map(|t| acts.scales32(t)).collect(), sums.collect())
    };
    Ok(DeviceActs {
        form: act_form(dtype),
        rows: tokens,
        n_in: acts.cols(),
        floats: device.alloc(0)?,
        codes: device.upload(&codes.concat())?,
        scales: device.upload(&scales.concat())?,
        sums: device.upload(&sums)?,
        pairs: device.upload(&if act_form(dtype) == ActForm::Q256 { pairs(acts, tokens) } else { Vec::new() })?,
    })
}

/// Runs every format and form the device has. `full` adds the widths of the reference model.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn gemm_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    for dtype in FORMATS {
        if dtype.is_float() {
            floats_of(device, dtype, full, report)?;
        } else {
            gemm_parity_of(device, dtype, full, report)?;
        }
    }
    Ok(())
}

/// Float matrices: widths that are whole stages, whole vectors, and neither.
fn floats_of(device: &Device, dtype: DType, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    for (cols, rows, tokens) in [(256, 70, 35), (101, 9, 3), (5, 1, 1), (2560, 513, 130)].into_iter().take(if full { 4 } else { 3 }) {
        let c = case(dtype, &Shape::new(rows, cols, tokens, 0));
        let w = DeviceWeights::upload(device, dtype, &c.bytes, cols, rows, 1)?;
        let mut acts = DeviceActs::new(device, dtype, tokens, cols)?;
        acts.floats.write(&(0..tokens).flat_map(|t| c.acts.f32_row(t).to_vec()).collect::<Vec<_>>())?;
        let mut out = device.alloc::<f32>(c.want.len())?;
        out.fill(POISON)?;
        gemm_float(device, &w, &acts, tokens, &out)?;
        report(compared(&c, &out.read()?, format!("{dtype} {cols}->{rows} x {tokens}")));
    }
    Ok(())
}

/// The report of a case.
fn compared(c: &Case, got: &[f32], case: String) -> CaseReport {
    let scale = c.exact.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    let errors = got.iter().zip(&c.exact).filter(|(g, _)| !g.is_nan()).map(|(g, e)| (f64::from(*g) - e).abs() / scale);
    let error = errors.fold(0.0, f64::max);
    // an error above the gate is a difference too: identical must not mean identically wrong
    let differing = differing(got, &c.want) + u64::from(error > GATE);
    CaseReport { suite: "gemm_parity", case, compared: got.len() as u64, differing, max_err64: Some(error) }
}

/// [`gemm_parity`] of one format.
fn gemm_parity_of(device: &Device, dtype: DType, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let (small, large) = if act_form(dtype) == ActForm::Q256 { (&WIDE, &WIDE_FULL) } else { (&NARROW, &NARROW_FULL) };
    for shape in small.iter().chain(large.iter().filter(|_| full)) {
        let c = case(dtype, shape);
        let (rows, cols) = (shape.rows, shape.blocks * dtype.block_len());
        let acts = upload(device, dtype, &c.acts, shape.tokens)?;
        let (act_rows, out_rows) = (device.upload(&c.act_rows)?, device.upload(&c.out_rows)?);
        let w = DeviceWeights::upload(device, dtype, &c.bytes, cols, rows, shape.experts.max(1))?;
        for form in GemmForm::ALL.into_iter().filter(|f| f.is_on(device)) {
            let mut out = device.alloc::<f32>(c.want.len())?;
            out.fill(POISON)?;
            let tiles = device.upload(&expert_tiles(c.groups.iter().copied(), form.tile().1))?;
            let items = match shape.experts {
                0 => GemmItems::All(shape.tokens),
                _ => GemmItems::Grouped { tiles: &tiles, act_rows: &act_rows, out_rows: &out_rows },
            };
            gemm(device, form, &w, &acts, &items, &out)?;
            let Shape { tokens, experts, .. } = shape;
            let name = format!("{dtype} {cols}->{rows} x {tokens}, {experts} experts, {form:?}");
            report(compared(&c, &out.read()?, name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::repack::chains;
    use crate::shim::ShimSide;

    #[test]
    fn tiles_give_the_definitions_bits_on_every_side() {
        for side in ShimSide::ALL {
            let Some(device) = crate::testing::tools(Device::open(side.arch())) else { return };
            let mut cases = 0;
            gemm_parity(&device, false, &mut |r| {
                cases += 1;
                assert!(r.differing == 0, "{side:?} {r:?}");
            })
            .unwrap();
            assert_eq!(cases, (FORMATS.len() - 3) * 4 * 3 + 3 * 3);
        }
    }

    /// Which cases of a format see a broken kernel, and whether each row of theirs has a block in every chain.
    fn seen(device: &Device, dtype: DType, broken: &str) -> Vec<(String, bool, bool)> {
        let mut cases = Vec::new();
        gemm_parity_of(&device.with_defines(&[broken]), dtype, false, &mut |r| cases.push((r.case, r.differing > 0))).unwrap();
        let shapes = if act_form(dtype) == ActForm::Q256 { &WIDE } else { &NARROW };
        let full = shapes.iter().flat_map(|s| [s.blocks >= chains(dtype); GemmForm::ALL.len()]);
        assert_eq!(cases.len(), shapes.len() * GemmForm::ALL.len());
        cases.into_iter().zip(full).map(|((case, seen), full)| (case, seen, full)).collect()
    }

    #[test]
    fn fewer_chains_are_seen() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        for dtype in [DType::Q8_0, DType::Q5_K] {
            let seen = seen(&device, dtype, "STRATA_BROKEN=1");
            // all but the shape of a single block
            assert!(seen.iter().filter(|s| s.1).count() >= seen.len() / 2, "{dtype}: {seen:?}");
        }
    }

    /// Chain 2 added before chain 1: seen by every form wherever chain 0 is not empty, since then three sums are added in another
    /// order, and only there.
    #[test]
    fn swapped_chains_are_seen() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        for dtype in [DType::Q8_0, DType::Q5_K] {
            let cases = seen(&device, dtype, "STRATA_BROKEN=2");
            assert!(cases.iter().any(|c| c.2) && cases.iter().any(|c| !c.2));
            for (case, seen, full) in cases {
                assert_eq!(seen, full, "{case}");
            }
        }
    }
}
