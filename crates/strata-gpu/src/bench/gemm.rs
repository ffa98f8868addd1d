//! `gemm`: products of quantised matrices with the tokens of a prompt, as shares of the card's int8 peak.

use super::{Limits, Timer, rotations};
use crate::device::Device;
use crate::error::Result;
use crate::products::gemm::{GemmForm, GemmItems, expert_tiles, gemm};
use crate::products::repack::{FORMATS, packed_bytes};
use crate::products::{DeviceActs, DeviceWeights};
use strata_cpu::parity::rng::Rng;
use strata_quant::DType;
use strata_quant::testing::{SplitMix64, random_blocks};

/// Shapes timed, in every block format: the model's large projections.
const SHAPES: [(usize, usize); 2] = [(2560, 10_240), (6144, 2560)];

/// Times every form: dense products of `numbers` tokens (512 and 2,048), then ten of 64 experts a token.
pub(super) fn gemm_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let limits = Limits::measure(device)?;
    let default: &[usize] = if device.is_shim() { &[64] } else { &[512, 2048] };
    let tokens = if numbers.is_empty() { default } else { numbers };
    line(format!("int8 peaks, 10^12 multiply-adds a second: matrix {:.1}, dot {:.1}", limits.matrix_s8 / 1e12, limits.dot4 / 1e12));
    let mut rng = Rng::new(5);
    for dtype in FORMATS.into_iter().filter(|d| !d.is_float()) {
        for (n_in, n_out) in if device.is_shim() { [(256, 128), (512, 64)] } else { SHAPES } {
            let sets = rotations(device, packed_bytes(dtype, n_out, n_in)).min(8);
            let bytes = random_blocks(dtype, n_out * n_in / dtype.block_len(), &mut SplitMix64::new(1));
            let weights = (0..sets).map(|_| DeviceWeights::upload(device, dtype, &bytes, n_in, n_out, 1)).collect::<Result<Vec<_>>>()?;
            for &n in tokens {
                let mut acts = DeviceActs::new(device, dtype, n, n_in)?;
                acts.quantize(device, &device.upload(&rng.normals(n * n_in, 1.0))?, n, false)?;
                let out = device.alloc::<f32>(n * n_out)?;
                for form in GemmForm::ALL.into_iter().filter(|f| f.is_on(device)) {
                    let items = GemmItems::All(n);
                    let t = Timer::default().time(device, &mut |i| gemm(device, form, &weights[i % sets], &acts, &items, &out))?;
                    let rate = (n * n_in * n_out) as f64 / (t.median * 1e-6);
                    line(format!("{dtype} {n_in}->{n_out} x {n} {form:?}: {t} {}", shares(rate, form, &limits)));
                }
            }
        }
        experts(device, dtype, &limits, &mut rng, line)?;
    }
    Ok(())
}

fn shares(rate: f64, form: GemmForm, limits: &Limits) -> String {
    let peak = if form == GemmForm::Dot { limits.dot4 } else { limits.matrix_s8 };
    format!("{:.1} T multiply-adds/s, {:.1}% of peak", rate / 1e12, 100.0 * rate / peak)
}

/// Ten of 64 experts for each of 256 tokens (40 tokens an expert), 2,560 -> 640.
fn experts(device: &Device, dtype: DType, limits: &Limits, rng: &mut Rng, line: &mut dyn FnMut(String)) -> Result<()> {
    let (n, experts, used, n_in, n_out) = if device.is_shim() { (16, 4, 2, 256, 64) } else { (256, 64, 10, 2560, 640) };
    let bytes = random_blocks(dtype, experts * n_out * n_in / dtype.block_len(), &mut SplitMix64::new(2));
    let weights = DeviceWeights::upload(device, dtype, &bytes, n_in, n_out, experts)?;
    let mut acts = DeviceActs::new(device, dtype, n, n_in)?;
    acts.quantize(device, &device.upload(&rng.normals(n * n_in, 1.0))?, n, false)?;
    let (mut act_rows, mut out_rows, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for e in 0..experts {
        let first = act_rows.len() as u32;
        for t in 0..n {
            for k in (0..used).filter(|k| (t * 7 + k * (experts / used)) % experts == e) {
                act_rows.push(t as u32);
                out_rows.push((t * used + k) as u32);
            }
        }
        groups.push((e as u32, first, act_rows.len() as u32));
    }
    let (act_rows, out_rows) = (device.upload(&act_rows)?, device.upload(&out_rows)?);
    let out = device.alloc::<f32>(n * used * n_out)?;
    for form in GemmForm::ALL.into_iter().filter(|f| f.is_on(device)) {
        let tiles = device.upload(&expert_tiles(groups.iter().copied(), form.tile().1))?;
        let items = GemmItems::Grouped { tiles: &tiles, act_rows: &act_rows, out_rows: &out_rows };
        let t = Timer::default().time(device, &mut |_| gemm(device, form, &weights, &acts, &items, &out))?;
        let rate = (n * used * n_in * n_out) as f64 / (t.median * 1e-6);
        line(format!("{dtype} {n_in}->{n_out} x {n}, {used} of {experts} experts, {form:?}: {t} {}", shares(rate, form, limits)));
    }
    Ok(())
}
