//! The bytes of a tensor: random bits from a counter, scales by amplitude. Any stretch can be made alone.

use crate::scales::{self, Scale};
use half::f16;
use std::collections::BTreeMap;
use strata_quant::testing::SplitMix64;
use strata_quant::{DType, dequantize};

/// What a tensor's values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Values {
    /// Of mean about 0 and this root mean square.
    Around(f32),
    /// Evenly spread from the first to the second; float types only.
    Between(f32, f32),
}

/// Makes the bytes of one tensor.
pub(crate) struct Filler {
    key: u64,
    dtype: DType,
    kind: Kind,
}

enum Kind {
    /// From the first on, steps of the second over 24 random bits.
    Floats(f32, f32),
    /// Random bits but for the scales.
    Blocks(Vec<(Scale, Near)>),
}

/// Encoded scales of either sign and from 3/4 to 5/4 of a nominal magnitude; a random byte of the block chooses. The signs make
/// formats whose codes do not average to zero do so.
type Near = Box<[u16; 256]>;

/// The scales of blocks of a nominal scale, and of minima with this share of it.
fn near(dtype: DType, minima: f32, nominal: f32) -> Vec<(Scale, Near)> {
    let d = |i: usize| nominal * (0.75 + (i / 2) as f32 / 256.0) * if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let one = |(at, s): (usize, &Scale)| {
        let share = if at == 1 && scales::has_minima(dtype) { minima } else { 1.0 };
        (*s, Box::new(std::array::from_fn(|i| s.encode(share * d(i)))))
    };
    scales::of(dtype).iter().enumerate().map(one).collect()
}

/// Blocks that the amplitude of a format is measured on.
const SAMPLE: usize = 256;

impl Filler {
    /// `name` makes each tensor's stream another.
    pub fn new(seed: u64, name: &str, dtype: DType, values: Values, units: &mut Units) -> Filler {
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let key = SplitMix64::word(seed, 0) ^ name;
        let step = |lo: f32, hi: f32| Kind::Floats(lo, (hi - lo) / (1 << 24) as f32);
        let kind = match values {
            Values::Between(lo, hi) => step(lo, hi),
            // the root mean square of an even spread from -a to a is a / sqrt(3)
            Values::Around(rms) if dtype.is_float() => step(-rms * 3f32.sqrt(), rms * 3f32.sqrt()),
            Values::Around(rms) => {
                let unit = units.of(dtype);
                Kind::Blocks(near(dtype, unit.minima, rms / unit.rms))
            }
        };
        Filler { key, dtype, kind }
    }

    /// Bytes that stretches start at multiples of: eight blocks, so that no counter step is cut.
    pub fn step(&self) -> usize {
        8 * self.dtype.block_bytes()
    }

    /// Makes the bytes from offset `at` of the tensor on; `at` is a multiple of [`Filler::step`], `out` is whole blocks.
    pub fn fill(&self, at: u64, out: &mut [u8]) {
        match &self.kind {
            Kind::Floats(lo, step) => self.floats(at, *lo, *step, out),
            Kind::Blocks(scales) => {
                bits(self.key, at / 8, out);
                put_scales(scales, out, self.dtype.block_bytes());
            }
        }
    }

    fn floats(&self, at: u64, lo: f32, step: f32, out: &mut [u8]) {
        let width = self.dtype.block_bytes();
        // one word of the counter a value: float tensors are small
        for (v, i) in out.chunks_exact_mut(width).zip(at / width as u64..) {
            let x = lo + step * (SplitMix64::word(self.key, i) >> 40) as f32;
            match width {
                4 => v.copy_from_slice(&x.to_le_bytes()),
                _ if self.dtype == DType::F16 => v.copy_from_slice(&f16::from_f32(x).to_le_bytes()),
                _ => v.copy_from_slice(&half::bf16::from_f32(x).to_le_bytes()),
            }
        }
    }
}

/// Random bits from word `first` on.
fn bits(key: u64, first: u64, out: &mut [u8]) {
    let (words, rest) = out.as_chunks_mut::<8>();
    let after = first + words.len() as u64;
    words.iter_mut().zip(first..).for_each(|(w, i)| *w = SplitMix64::word(key, i).to_le_bytes());
    rest.copy_from_slice(&SplitMix64::word(key, after).to_le_bytes()[..rest.len()]);
}

/// Overwrites the scales of blocks of random bits.
fn put_scales(scales: &[(Scale, Near)], bytes: &mut [u8], block_bytes: usize) {
    for block in bytes.chunks_exact_mut(block_bytes) {
        // a byte in the middle is a code in every format
        let chosen = usize::from(block[block_bytes / 2]);
        scales.iter().for_each(|(scale, near)| scale.put(block, near[chosen]));
    }
}

/// What a format's random blocks come to where their scales are about 1.
#[derive(Clone, Copy)]
struct Unit {
    /// Share of the scale that minima need for values to average to zero.
    minima: f32,
    /// Root mean square of the values.
    rms: f32,
}

/// The formats' units, each measured once.
#[derive(Default)]
pub(crate) struct Units(BTreeMap<DType, Unit>);

impl Units {
    fn of(&mut self, dtype: DType) -> Unit {
        *self.0.entry(dtype).or_insert_with(|| {
            let minima = if scales::has_minima(dtype) {
                // values are linear in both: one mean without minima, one with as much of them
                let (without, with) = (sample(dtype, 0.0, |v| v), sample(dtype, 1.0, |v| v));
                without / (without - with)
            } else {
                0.0
            };
            let rms = sample(dtype, minima as f32, |v| v * v).sqrt() as f32;
            Unit { minima: minima as f32, rms: rms.max(f32::MIN_POSITIVE) }
        })
    }
}

/// Mean of `f` over the values of random blocks whose scales are about 1, positive ones for the sake of the mean.
fn sample(dtype: DType, minima: f32, f: impl Fn(f64) -> f64) -> f64 {
    let (block_bytes, mut scales) = (dtype.block_bytes(), near(dtype, minima, 1.0));
    for (_, near) in &mut scales {
        let positive = **near;
        near.iter_mut().enumerate().for_each(|(i, bits)| *bits = positive[i & !1]);
    }
    let mut bytes = vec![0; SAMPLE * block_bytes];
    bits(0, 0, &mut bytes);
    put_scales(&scales, &mut bytes, block_bytes);
    let mut values = vec![0.0; SAMPLE * dtype.block_len()];
    dequantize(dtype, &bytes, &mut values).expect("whole blocks");
    values.iter().map(|v| f(f64::from(*v))).sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(dtype: DType, values: Values, blocks: usize) -> Vec<f32> {
        let f = Filler::new(7, "x", dtype, values, &mut Units::default());
        let mut bytes = vec![0; blocks * dtype.block_bytes()];
        f.fill(0, &mut bytes);
        let mut out = vec![0.0; blocks * dtype.block_len()];
        dequantize(dtype, &bytes, &mut out).unwrap();
        out
    }

    #[test]
    fn every_format_has_the_amplitude_asked_for() {
        for dtype in DType::all() {
            let x = made(dtype, Values::Around(0.02), 65_536 / dtype.block_len());
            let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
            let rms = (x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64).sqrt();
            // formats with coarse scales (powers of two, 8-bit floats) miss it by a step
            let coarse = matches!(dtype.name(), "MXFP4" | "NVFP4");
            let near = if coarse { 0.01..0.04 } else { 0.019..0.021 };
            assert!(near.contains(&rms), "{dtype}: {rms}");
            assert!(mean.abs() < 0.05 * rms, "{dtype}: mean {mean}");
        }
    }

    #[test]
    fn ranges_are_kept() {
        let x = made(DType::F32, Values::Between(2.0, 3.0), 4096);
        assert!(x.iter().all(|v| (2.0..=3.0).contains(v)) && x.iter().any(|v| *v < 2.05) && x.iter().any(|v| *v > 2.95));
    }

    #[test]
    fn stretches_are_the_whole() {
        for dtype in DType::all() {
            let f = Filler::new(1, "t", dtype, Values::Around(1.0), &mut Units::default());
            let mut whole = vec![0; 4 * f.step()];
            f.fill(0, &mut whole);
            for (i, want) in whole.chunks(f.step()).enumerate() {
                let mut part = vec![0; want.len()];
                f.fill((i * f.step()) as u64, &mut part);
                assert!(part == want, "{dtype} {i}");
            }
            let other = |seed, name: &str| {
                let mut b = vec![0; f.step()];
                Filler::new(seed, name, dtype, Values::Around(1.0), &mut Units::default()).fill(0, &mut b);
                b
            };
            assert!(other(1, "t") == whole[..f.step()] && other(2, "t") != other(1, "t") && other(1, "u") != other(1, "t"), "{dtype}");
        }
    }
}
