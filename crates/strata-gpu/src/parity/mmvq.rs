//! `mmvq_multi_parity`: mat-vec of every format for one to eight columns, each output against `dot_row` by bits, and each launch of
//! several columns against launches of one.

use super::differing;
use super::gemm::{TINY_MEETS, pairs, tiny_scales};
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::products::repack::FORMATS;
use crate::products::{DeviceActs, DeviceWeights, Variant, VariantEntry, VariantTable, mat_vec, mat_vec_experts};
use strata_cpu::parity::CaseReport;
use strata_cpu::parity::rng::Rng;
use strata_ops::matmul::{ActForm, Acts, Forms, dot_row};
use strata_quant::DType;
use strata_quant::testing::{SplitMix64, random_blocks};

const SUITE: &str = "mmvq_multi_parity";
const POISON: u8 = 0xa5;
const WIDTHS: [usize; 7] = [1, 2, 3, 4, 5, 6, 8];

/// Columns of a run.
fn tested(full: bool) -> &'static [usize] {
    if full { &WIDTHS } else { &[1, 3, 8] }
}

/// The published cases: format, n_in, n_out.
const CASES: [(DType, usize, usize); 7] = [
    (DType::Q4_0, 2048, 512),
    (DType::Q8_0, 2048, 512),
    (DType::Q4_K, 2048, 512),
    (DType::Q5_K, 2048, 512),
    (DType::Q6_K, 2048, 512),
    (DType::IQ4_XS, 4096, 512),
    (DType::Q5_K, 4096, 2048),
];

/// Formats that the published cases leave out.
fn others() -> impl Iterator<Item = DType> {
    FORMATS.into_iter().filter(|d| CASES.iter().all(|c| c.0 != *d))
}

/// A matrix and activations on both sides.
struct Case {
    dtype: DType,
    n_out: usize,
    bytes: Vec<u8>,
    weights: DeviceWeights,
    acts: Acts,
    device_acts: DeviceActs,
}

impl Case {
    fn new(device: &Device, dtype: DType, n_in: usize, n_out: usize, experts: usize, columns: usize, seed: u64) -> Result<Case> {
        let bytes = random_blocks(dtype, experts * n_out * (n_in / dtype.block_len()), &mut SplitMix64::new(seed));
        Case::of(device, dtype, bytes, n_in, n_out, experts, Rng::new(seed).normals(columns * n_in, 1.0))
    }

    fn of(device: &Device, dtype: DType, bytes: Vec<u8>, n_in: usize, n_out: usize, experts: usize, x: Vec<f32>) -> Result<Case> {
        let columns = x.len() / n_in;
        let weights = DeviceWeights::upload(device, dtype, &bytes, n_in, n_out, experts)?;
        let mut acts = Acts::new(columns, n_in, Forms::of([dtype]));
        acts.rows_mut(columns).fill(&x);
        let mut device_acts = DeviceActs::new(device, dtype, columns, n_in)?;
        if device_acts.form == ActForm::F32 {
            device_acts.floats.write(&x)?;
        } else {
            device_acts.quantize(device, &device.upload(&x)?, columns, false)?;
        }
        Ok(Case { dtype, n_out, bytes, weights, acts, device_acts })
    }

    /// The definition: row r of matrix `expert` times column t.
    fn reference(&self, expert: usize, t: usize) -> Vec<f32> {
        let row = self.bytes.len() / (self.weights.experts * self.n_out);
        let matrix = &self.bytes[expert * self.n_out * row..][..self.n_out * row];
        matrix.chunks_exact(row).map(|r| dot_row(self.dtype, r, &self.acts, t)).collect()
    }

    fn poisoned(&self, device: &Device, rows: usize) -> Result<Buffer<f32>> {
        let mut out = device.alloc(rows * self.n_out)?;
        out.fill(POISON)?;
        Ok(out)
    }

    /// Every column at once by each of some variants, then column by column where they are all; the outputs that differ from
    /// the definition. A value that is not finite counts too.
    fn run(&self, device: &Device, columns: usize, variants: &[Variant]) -> Result<(u64, u64)> {
        let want: Vec<f32> = (0..columns).flat_map(|t| self.reference(0, t)).collect();
        let mut differ = want.iter().filter(|v| !v.is_finite()).count() as u64;
        for variant in variants.iter().copied().filter(|v| v.takes(self.dtype, columns)) {
            let entry = |columns| VariantEntry { dtype: self.dtype, columns, n_out: self.n_out, variant };
            let table = VariantTable::new((1..=8).map(entry).collect());
            let together = self.poisoned(device, columns)?;
            mat_vec(device, &table, &self.weights, &self.device_acts, 0, columns, &together)?;
            differ += differing(&together.read()?, &want);
        }
        if columns > 1 && variants == Variant::ALL {
            let mut alone = Vec::new();
            for t in 0..columns {
                let out = self.poisoned(device, 1)?;
                mat_vec(device, &VariantTable::default(), &self.weights, &self.device_acts, t, 1, &out)?;
                alone.extend(out.read()?);
            }
            differ += differing(&alone, &want);
        }
        Ok((want.len() as u64, differ))
    }
}

/// Every format. `full` runs the published sizes: 148,480 outputs in the published cases.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn mmvq_multi_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    published(device, full, &CASES, &Variant::ALL, tested(full), report)?;
    for dtype in others() {
        let (n_in, n_out) = if full { (2560, 512) } else { (512, 12) };
        widths(device, dtype, n_in, n_out, &Variant::ALL, tested(full), report)?;
    }
    subnormal_scales(device, report)?;
    for dtype in FORMATS {
        odd_shapes(device, full, dtype, report)?;
        if dtype.is_float() {
            // enough rows that columns share a workgroup, more values than it stages at a time
            widths(device, dtype, 1_096, 32 * device.info().units as usize + 5, &Variant::ALL, tested(full), report)?;
        } else {
            experts(device, full, dtype, report)?;
        }
    }
    Ok(())
}

/// The published cases of some formats; the negative control runs it with broken kernels.
fn published(
    device: &Device,
    full: bool,
    cases: &[(DType, usize, usize)],
    variants: &[Variant],
    columns: &[usize],
    report: &mut dyn FnMut(CaseReport),
) -> Result<()> {
    for (dtype, n_in, n_out) in cases.iter().copied() {
        let n_out = if full {
            n_out
        } else if n_out > 512 {
            9
        } else {
            20
        };
        widths(device, dtype, n_in, n_out, variants, columns, report)?;
    }
    Ok(())
}

fn widths(
    device: &Device,
    dtype: DType,
    n_in: usize,
    n_out: usize,
    variants: &[Variant],
    columns: &[usize],
    report: &mut dyn FnMut(CaseReport),
) -> Result<()> {
    let (mut compared, mut differ) = (0, 0);
    for columns in columns.iter().copied().filter(|t| variants.iter().any(|v| v.takes(dtype, *t))) {
        let seed = 1234 + 97 * u64::from(dtype.id()) + columns as u64;
        let (n, d) = Case::new(device, dtype, n_in, n_out, 1, columns, seed)?.run(device, columns, variants)?;
        (compared, differ) = (compared + n, differ + d);
    }
    report(CaseReport { suite: SUITE, case: format!("{dtype} {n_in} x {n_out}"), compared, differing: differ, max_err64: None });
    Ok(())
}

/// MXFP4 with scales that are subnormal floats, which no device may take for zeros.
fn subnormal_scales(device: &Device, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let (n_in, n_out, dtype) = (352, 19, DType::MXFP4);
    let (mut compared, mut differ) = (0, 0);
    for columns in [1, 4] {
        let mut bytes = random_blocks(dtype, n_out * n_in / dtype.block_len(), &mut SplitMix64::new(3));
        tiny_scales(&mut bytes);
        let x = Rng::new(4).normals(columns * n_in, TINY_MEETS);
        let (n, d) = Case::of(device, dtype, bytes, n_in, n_out, 1, x)?.run(device, columns, &Variant::ALL)?;
        (compared, differ) = (compared + n, differ + d);
    }
    report(CaseReport { suite: SUITE, case: format!("{dtype} subnormal scales"), compared, differing: differ, max_err64: None });
    Ok(())
}

/// Few blocks, chains of unequal length, rows that are not whole groups, more than eight columns.
fn odd_shapes(device: &Device, full: bool, dtype: DType, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let mut rng = Rng::new(u64::from(dtype.id()));
    let (mut compared, mut differ) = (0, 0);
    for i in 0..if full { 60 } else { 6 } {
        let unit = dtype.block_len();
        let blocks = match unit {
            1 => 1 + rng.below(if full { 700 } else { 150 }),
            32 => 1 + rng.below(21),
            _ => 1 + rng.below(11),
        };
        let columns = if full { 1 + rng.below(19) } else { [1, 2, 5, 7, 4, 6][i] };
        let n_out = [1, 3, 7, 8, 9, 17, 33, 70][rng.below(if full { 8 } else { 5 })];
        let (n, d) = Case::new(device, dtype, unit * blocks, n_out, 1, columns, rng.bits())?.run(device, columns, &Variant::ALL)?;
        (compared, differ) = (compared + n, differ + d);
    }
    report(CaseReport { suite: SUITE, case: format!("{dtype} odd shapes"), compared, differing: differ, max_err64: None });
    Ok(())
}

/// Ten experts of one or two tokens; an id below 0 leaves its output.
fn experts(device: &Device, full: bool, dtype: DType, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let (n_in, n_out, of) = if full { (2560, 640, 24) } else { (3 * dtype.block_len(), 12, 5) };
    let (mut compared, mut differ) = (0, 0);
    for (tokens, share) in [(1, 10), (2, 10), (20, 1)] {
        let case = Case::new(device, dtype, n_in, n_out, of, tokens, 5 + u64::from(dtype.id()))?;
        let ids: Vec<i32> = (0..tokens * share).map(|k| if k == 3 { -1 } else { (k * 7 % of) as i32 }).collect();
        let poison = f32::from_bits(u32::from_ne_bytes([POISON; 4]));
        let row = |(k, id): (usize, &i32)| match usize::try_from(*id) {
            Ok(e) => case.reference(e, k / share),
            Err(_) => vec![poison; n_out],
        };
        let want: Vec<f32> = ids.iter().enumerate().flat_map(row).collect();
        compared += want.len() as u64;
        let out = case.poisoned(device, ids.len())?;
        mat_vec_experts(device, &case.weights, &case.device_acts, share, &device.upload(&ids)?, &out)?;
        differ += differing(&out.read()?, &want);
    }
    report(CaseReport { suite: SUITE, case: format!("{dtype} experts"), compared, differing: differ, max_err64: None });
    Ok(())
}

/// The suite's negative control: chains 1 and 2 swapped, then half as many chains. Each published case must differ by each kernel
/// that runs on the device.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn mmvq_multi_parity_broken(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let cases = if full { &CASES[..] } else { &CASES[1..3] };
    for broken in ["STRATA_BROKEN=1", "STRATA_BROKEN=2"] {
        let device = device.with_defines(&[broken]);
        for case in cases {
            let runs = |(v, t): &(Variant, usize)| v.runs_on(&device.info().arch, case.0, *t);
            let mut kernels: Vec<String> = Vec::new();
            for (variant, columns) in Variant::ALL.into_iter().flat_map(|v| WIDTHS.map(|t| (v, t))).filter(runs) {
                let kernel = variant.kernel(case.0, columns);
                if kernels.contains(&kernel) {
                    continue;
                }
                published(&device, full, &[*case], &[variant], &[columns], &mut |mut c| {
                    c.case = format!("{} {kernel} {broken}", c.case);
                    report(c);
                })?;
                kernels.push(kernel);
            }
        }
    }
    Ok(())
}

/// `quantize_parity`: activations to int8 blocks in one and two orders, against the CPU's by bits.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn quantize_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    for (dtype, unit, name) in [(DType::Q8_0, 32, "32 wide"), (DType::Q4_K, 256, "256 wide")] {
        let (mut compared, mut differ) = (0, 0);
        let mut rng = Rng::new(unit as u64);
        for i in 0..if full { 200 } else { 12 } {
            let (rows, n_in) = (1 + rng.below(if full { 40 } else { 4 }), unit * (1 + rng.below(if unit == 32 { 90 } else { 12 })));
            let x = activations(&mut rng, rows * n_in, unit);
            let mut acts = Acts::new(2 * rows, n_in, Forms::of([dtype]));
            let (mut first, mut second) = acts.rows_mut(2 * rows).split_at(rows);
            first.fill(&x);
            second.fill_second_order(&x, &first);
            let two = i % 2 == 1;
            let n = rows * (1 + usize::from(two));
            let mut got = DeviceActs::new(device, dtype, n, n_in)?;
            got.codes.fill(POISON)?;
            got.scales.fill(POISON)?;
            got.sums.fill(POISON)?;
            got.pairs.fill(POISON)?;
            got.quantize(device, &device.upload(&x)?, rows, two)?;
            let of = |f: &dyn Fn(usize) -> Vec<i32>| (0..n).flat_map(f).collect::<Vec<i32>>();
            let narrow = unit == 32;
            let codes: Vec<i8> = (0..n).flat_map(|t| if narrow { acts.codes32(t) } else { acts.codes256(t) }.to_vec()).collect();
            let scales: Vec<f32> = (0..n).flat_map(|t| if narrow { acts.scales32(t) } else { acts.scales256(t) }.to_vec()).collect();
            let wide = |t: usize| acts.sums256(t).chunks_exact(2).map(|s| i32::from(s[0]) + i32::from(s[1])).collect();
            let sums = of(&|t| if narrow { acts.sums32(t).to_vec() } else { wide(t) });
            compared += (codes.len() + scales.len() + sums.len()) as u64;
            differ += differing(&got.codes.read()?, &codes) + differing(&got.scales.read()?, &scales) + differing(&got.sums.read()?, &sums);
            let halves = if narrow { Vec::new() } else { pairs(&acts, n) };
            compared += halves.len() as u64;
            differ += differing(&got.pairs.read()?, &halves);
        }
        report(CaseReport { suite: "quantize_parity", case: name.into(), compared, differing: differ, max_err64: None });
    }
    Ok(())
}

/// Values of every size, blocks of zeros, blocks at the limit of what counts as zero, exact ties.
fn activations(rng: &mut Rng, n: usize, unit: usize) -> Vec<f32> {
    let mut x = Vec::with_capacity(n);
    while x.len() < n {
        let scale = match rng.below(6) {
            0 => 0.0,
            1 => 2f32.powi(-100 - rng.below(4) as i32),
            2 => 2f32.powi(-120),
            3 => 2f32.powi(rng.below(90) as i32),
            _ => 1.0,
        };
        let ties = rng.below(5) == 0;
        x.extend((0..unit).map(|i| match (ties, i) {
            (true, 0) => 127.0,
            (true, _) => rng.below(255) as f32 * 0.5 - 63.5,
            _ => rng.normal() * scale,
        }));
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::SuiteFn;
    use crate::testing::tools;

    fn cases(side: &str, suite: SuiteFn) -> Option<Vec<CaseReport>> {
        let device = tools(Device::open(side))?;
        let mut all = Vec::new();
        suite(&device, false, &mut |c| all.push(c)).unwrap();
        Some(all)
    }

    fn exact(side: &str) {
        for (suite, expected) in [(quantize_parity as SuiteFn, 2), (mmvq_multi_parity, 77)] {
            let Some(all) = cases(side, suite) else { return };
            assert_eq!(all.len(), expected);
            let wrong: Vec<_> = all.iter().filter(|c| c.differing > 0 || c.compared == 0).collect();
            assert!(wrong.is_empty(), "{side}: {wrong:?}");
        }
    }

    #[test]
    fn mat_vec_is_exact_on_the_shim_as_cuda() {
        exact("shim-cuda");
    }

    #[test]
    fn mat_vec_is_exact_on_the_shim_as_gfx12() {
        exact("shim-gfx12");
    }

    /// Nothing here but the compiler's target tells gfx11 from gfx12, so two formats do.
    #[test]
    fn mat_vec_is_exact_on_the_shim_as_gfx11() {
        let Some(all) =
            cases("shim-gfx11", |device, full, report| published(device, full, &CASES[1..3], &Variant::ALL, tested(full), report))
        else {
            return;
        };
        assert!(all.len() == 2 && all.iter().all(|c| c.differing == 0 && c.compared > 0), "{all:?}");
    }

    #[test]
    fn other_chains_are_seen() {
        let Some(all) = cases("shim-cuda", mmvq_multi_parity_broken) else { return };
        assert_eq!(all.len(), 22); // two breaks, five and six kernels
        // a kernel of one column has twenty outputs, of which few change by another order of three sums
        assert!(all.iter().all(|c| c.differing > 2), "{all:?}");
    }

    /// A row for each byte of a block, in which that byte has another lowest bit: the rows must differ, in every format, but for the
    /// codes of sub-blocks whose scale is zero.
    #[test]
    fn changed_weights_are_seen() {
        let Some(device) = tools(Device::open("shim-cuda")) else { return };
        for dtype in FORMATS {
            let (cols, rows) = (dtype.block_len(), dtype.block_bytes());
            let bytes = random_blocks(dtype, rows, &mut SplitMix64::new(8));
            // no activation is nothing
            let x = Rng::new(8).normals(cols, 1.0).iter().map(|x| x + x.signum()).collect();
            let mut case = Case::of(&device, dtype, bytes, cols, rows, 1, x).unwrap();
            let variants = Variant::ALL.iter().filter(|v| v.takes(dtype, 1)).count();
            assert_eq!(case.run(&device, 1, &Variant::ALL).unwrap(), (rows as u64, 0), "{dtype}");
            for (r, row) in case.bytes.chunks_exact_mut(rows).enumerate() {
                row[r] ^= 1;
            }
            let (_, differ) = case.run(&device, 1, &Variant::ALL).unwrap();
            assert!(8 * differ >= (7 * rows * variants) as u64, "{dtype}: {differ} of {rows} rows by {variants} kernels");
        }
    }
}
