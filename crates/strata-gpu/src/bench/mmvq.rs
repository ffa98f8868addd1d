//! `b6_mmvq_bench`: mat-vec at the model's shapes, against the time to read as many bytes.

use super::{Timer, Timing, read_time, rotations};
use crate::device::{Buffer, Device};
use crate::error::{GpuError, Result};
use crate::products::repack::repack;
use crate::products::{DeviceActs, DeviceWeights, MAX_COLUMNS, Variant, VariantEntry, VariantTable, mat_vec, mat_vec_experts};
use strata_cpu::parity::rng::Rng;
use strata_ops::matmul::ActForm;
use strata_quant::DType;
use strata_quant::testing::{SplitMix64, random_blocks};

const WIDTHS: [usize; 7] = [1, 2, 3, 4, 5, 6, 8];
/// Experts of a token.
const CHOSEN: usize = 10;

/// A matrix of the model: its place, n_in, n_out, formats.
type Shape = (&'static str, usize, usize, &'static [DType]);

const SHAPES: [Shape; 11] = [
    ("GDN qkv", 2560, 10_240, &[DType::Q6_K, DType::Q4_K, DType::Q5_K, DType::IQ4_XS]),
    ("GDN gate", 2560, 6144, &[DType::Q6_K]),
    ("GDN out", 6144, 2560, &[DType::Q6_K, DType::IQ4_XS, DType::Q4_K]),
    ("QSA q", 2560, 12_288, &[DType::IQ4_XS, DType::Q6_K]),
    ("attention q", 2560, 6144, &[DType::IQ4_XS, DType::Q8_0]),
    ("shared up", 2560, 640, &[DType::IQ3_S]),
    ("shared gate", 2560, 640, &[DType::Q4_K]),
    ("shared down", 640, 2560, &[DType::IQ4_NL]),
    ("router", 2560, 512, &[DType::BF16]),
    ("MTP head", 2560, 106_299, &[DType::Q6_K]),
    ("head", 2560, 248_320, &[DType::Q5_K, DType::Q6_K]),
];
const EXPERTS: [Shape; 2] = [("experts up", 2560, 640, &WIDE), ("experts down", 640, 2560, &NARROW)];
/// Formats of experts.
const WIDE: [DType; 13] = [
    DType::Q4_K,
    DType::IQ3_S,
    DType::IQ4_XS,
    DType::IQ2_XS,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ3_XXS,
    DType::IQ2_S,
    DType::IQ2_XXS,
    DType::IQ1_M,
    DType::IQ1_S,
];
const NARROW: [DType; 9] =
    [DType::IQ4_NL, DType::Q4_0, DType::Q8_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q2_0, DType::MXFP4, DType::NVFP4];

/// Copies of one matrix beyond the L2, with activations for eight columns.
struct Case {
    sets: Vec<DeviceWeights>,
    acts: DeviceActs,
    out: Buffer<f32>,
    bytes: usize,
}

impl Case {
    /// `experts` matrices a call, 0 for a plain one; the copies then are one buffer of experts.
    fn new(device: &Device, dtype: DType, n_in: usize, n_out: usize, experts: usize) -> Result<Case> {
        let (n_in, n_out) = if device.is_shim() { (n_in.min(512), n_out.min(64)) } else { (n_in, n_out) };
        let raw = random_blocks(dtype, n_out * (n_in / dtype.block_len()), &mut SplitMix64::new(7));
        let packed = repack(dtype, &raw, n_out, n_in);
        let bytes = raw.len() * experts.max(1);
        let copies = rotations(device, bytes);
        let sets = if experts > 0 {
            vec![DeviceWeights::from_packed(device, dtype, &packed.repeat(copies * experts), n_in, n_out, copies * experts)?]
        } else {
            (0..copies).map(|_| DeviceWeights::from_packed(device, dtype, &packed, n_in, n_out, 1)).collect::<Result<_>>()?
        };
        let columns = if experts > 0 { experts } else { 8 };
        let x = device.upload(&Rng::new(8).normals(columns * n_in, 1.0))?;
        let mut acts = DeviceActs::new(device, dtype, columns, n_in)?;
        if acts.form == ActForm::F32 {
            acts.floats = x;
        } else {
            acts.quantize(device, &x, columns, false)?;
        }
        Ok(Case { sets, acts, out: device.alloc(columns * n_out)?, bytes })
    }

    fn time(&self, device: &Device, timer: Timer, columns: usize, variants: &VariantTable) -> Result<Timing> {
        timer.time(device, &mut |i| mat_vec(device, variants, &self.sets[i % self.sets.len()], &self.acts, 0, columns, &self.out))
    }

    /// The times of every variant that takes the columns on this device. All must give the bits of launches of single columns.
    fn times(&self, device: &Device, timer: Timer, columns: usize) -> Result<Vec<(Variant, Timing)>> {
        let (dtype, n_out) = (self.sets[0].dtype, self.sets[0].n_out);
        let mut times: Vec<(Variant, Timing)> = Vec::new();
        let runs = |v: &Variant| v.takes(dtype, columns) && (dtype.is_float() || v.runs_on(&device.info().arch, dtype, columns));
        for variant in Variant::ALL.into_iter().filter(runs) {
            let table = VariantTable::new(vec![VariantEntry { dtype, columns, n_out, variant }]);
            times.push((variant, self.time(device, timer, columns, &table)?));
            let together = self.out.read()?;
            for (t, together) in together.chunks_exact(n_out).take(columns).enumerate() {
                let alone = device.alloc::<f32>(n_out)?;
                mat_vec(device, &VariantTable::default(), &self.sets[0], &self.acts, t, 1, &alone)?;
                if !together.iter().zip(&alone.read()?).all(|(a, b)| a.is_finite() && a.to_bits() == b.to_bits()) {
                    let reason = format!("{columns} columns give other bits than one ({variant:?})");
                    return Err(GpuError::Kernel { kernel: format!("mat_vec {dtype}"), reason });
                }
            }
        }
        Ok(times)
    }
}

fn fastest(times: &[(Variant, Timing)]) -> Option<(Variant, Timing)> {
    times.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median)).copied()
}

/// Measures which variant is fastest for matrices (format, n_in, n_out) and one to eight columns.
///
/// # Errors
/// Not enough memory, or a driver's error.
pub fn tune_variants(device: &Device, matrices: &[(DType, usize, usize)]) -> Result<VariantTable> {
    let mut entries = Vec::new();
    for &(dtype, n_in, n_out) in matrices {
        let case = Case::new(device, dtype, n_in, n_out, 0)?;
        for columns in 1..=MAX_COLUMNS {
            let variant = fastest(&case.times(device, Timer::default(), columns)?).map(|(variant, _)| variant);
            entries.extend(variant.map(|variant| VariantEntry { dtype, columns, n_out, variant }));
        }
    }
    Ok(VariantTable::new(entries))
}

/// Prints, for each matrix and number of columns, the fastest variant, what share of the reading limit it reaches, and the medians of
/// every variant, a star at that which is chosen with no measured entry; then ten experts of one token. Numbers: repetitions, and rows of the only
/// matrices to time.
pub(super) fn mmvq_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let timer = Timer { samples: numbers.first().map_or(21, |reps| (reps / 20).max(3)), ..Timer::default() };
    let figures = |bytes: usize, t: Timing, read: Timing| {
        let rate = bytes as f64 / t.median * 1e-3;
        format!("{rate:>6.0} GB/s {:>5.1} % of reading in {:.2} us", 100.0 * read.median / t.median, read.median)
    };
    let shapes = |all: &'static [Shape]| {
        let wanted = all.iter().filter(|(_, _, n_out, _)| numbers.get(1).is_none_or(|n| n == n_out));
        wanted.flat_map(|(place, n_in, n_out, formats)| formats.iter().map(move |f| (*place, *n_in, *n_out, *f))).collect::<Vec<_>>()
    };
    let (plain, experts) = (shapes(&SHAPES), shapes(&EXPERTS));
    if plain.is_empty() && experts.is_empty() {
        let expected = "rows of one of the model's matrices".into();
        return Err(GpuError::Launch { kernel: "b6_mmvq_bench".into(), expected, found: numbers[1].to_string() });
    }
    for (place, n_in, n_out, dtype) in plain {
        let case = Case::new(device, dtype, n_in, n_out, 0)?;
        let read = read_time(device, case.bytes, timer)?;
        for columns in WIDTHS {
            let times = case.times(device, timer, columns)?;
            let Some((variant, best)) = fastest(&times) else { continue };
            let chosen = VariantTable::default().variant_on(&device.info().arch, dtype, columns, n_out, device.info().units);
            let each = times.iter().map(|(v, t)| format!("{}{} {:.2}", v.name(), if *v == chosen { "*" } else { "" }, t.median));
            let (all, text) = (each.collect::<Vec<_>>().join("  "), figures(case.bytes, best, read));
            line(format!("{place:<12} {dtype:<7} {n_in}x{n_out} c{columns} {:<6} {best} {text} | {all}", variant.name()));
        }
    }
    for (place, n_in, n_out, dtype) in experts {
        let case = Case::new(device, dtype, n_in, n_out, CHOSEN)?;
        let (w, read) = (&case.sets[0], read_time(device, case.bytes, timer)?);
        let ids = (0..w.experts / CHOSEN)
            .map(|s| device.upload(&(0..CHOSEN).map(|k| (s * CHOSEN + k) as i32).collect::<Vec<_>>()))
            .collect::<Result<Vec<_>>>()?;
        let share = if place.ends_with("up") { CHOSEN } else { 1 };
        let t = timer.time(device, &mut |i| mat_vec_experts(device, w, &case.acts, share, &ids[i % ids.len()], &case.out))?;
        line(format!("{place:<12} {dtype:<7} {CHOSEN} x {n_in}x{n_out} {t} {}", figures(case.bytes, t, read)));
    }
    Ok(())
}
