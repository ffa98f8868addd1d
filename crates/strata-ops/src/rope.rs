//! Rotary position embedding: tables built once on the host, and the rotation.

/// How positions are stretched beyond the trained context (`rope.scaling.*` in GGUF).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every frequency divided by `factor`.
    Linear {
        factor: f32,
    },
    /// YaRN by the Hugging Face formula.
    Yarn {
        factor: f32,
        original_context: u32,
        beta_fast: f32,
        beta_slow: f32,
        /// Multiplies cos and sin; `None` means `0.1 ln(factor) + 1`.
        attention_factor: Option<f32>,
    },
}

/// cos and sin of every position, `[positions, dims / 2]` each.
#[derive(Clone, Debug)]
pub struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// Tables for positions `0..positions`, `dims` rotated dimensions of base `theta`.
    ///
    /// The angle is `f32(pos) * inv_freq`, each rounded to `f32`; its cos and sin are taken in `f64` by `libm`,
    /// multiplied by the attention factor (1 without YaRN) and rounded to `f32`.
    pub fn new(positions: usize, dims: usize, theta: f32, scaling: RopeScaling) -> RopeTable {
        let (inv_freq, attention_factor) = inverse_frequencies(dims, theta, scaling);
        let half = dims / 2;
        let mut cos = Vec::with_capacity(positions * half);
        let mut sin = Vec::with_capacity(positions * half);
        for pos in 0..positions {
            for f in &inv_freq {
                let angle = f64::from(pos as f32 * f);
                cos.push(libm::cos(angle) as f32 * attention_factor);
                sin.push(libm::sin(angle) as f32 * attention_factor);
            }
        }
        RopeTable { half, cos, sin }
    }

    /// Positions the table holds.
    pub fn positions(&self) -> usize {
        self.cos.len() / self.half.max(1)
    }

    /// cos and sin of one position, `dims / 2` each.
    #[inline(always)]
    pub fn at(&self, pos: usize) -> (&[f32], &[f32]) {
        let r = pos * self.half..(pos + 1) * self.half;
        (&self.cos[r.clone()], &self.sin[r])
    }
}

/// Inverse frequencies, `dims / 2`, and the factor on cos and sin. Every step is rounded to `f32`, as the Hugging
/// Face code does; the power itself is taken in `f64` and rounded.
pub fn inverse_frequencies(dims: usize, theta: f32, scaling: RopeScaling) -> (Vec<f32>, f32) {
    let half = dims / 2;
    let pos_freq = |i: usize| libm::pow(f64::from(theta), f64::from((2 * i) as f32 / dims as f32)) as f32;
    match scaling {
        RopeScaling::None => ((0..half).map(|i| 1.0 / pos_freq(i)).collect(), 1.0),
        RopeScaling::Linear { factor } => ((0..half).map(|i| (1.0 / pos_freq(i)) / factor).collect(), 1.0),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
            // the dimension whose wavelength makes `rotations` turns over the original context
            let correction = |rotations: f32| {
                let turns = f64::from(original_context) / (f64::from(rotations) * 2.0 * std::f64::consts::PI);
                dims as f64 * libm::log(turns) / (2.0 * libm::log(f64::from(theta)))
            };
            let low = libm::floor(correction(beta_fast)).max(0.0);
            let mut high = libm::ceil(correction(beta_slow)).min(dims as f64 - 1.0);
            if low == high {
                high += 0.001;
            }
            let freqs = (0..half).map(|i| {
                let p = pos_freq(i);
                let (extrapolation, interpolation) = (1.0 / p, 1.0 / (factor * p));
                let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
                let keep = 1.0 - ramp;
                interpolation * (1.0 - keep) + extrapolation * keep
            });
            let default_factor = if factor <= 1.0 { 1.0 } else { (0.1 * libm::log(f64::from(factor)) + 1.0) as f32 };
            (freqs.collect(), attention_factor.unwrap_or(default_factor))
        }
    }
}

/// Rotates the first `2 * cos.len()` values of a head in place, pairing i with i + half ("neox"):
/// `a' = a * cos - b * sin`, `b' = b * cos + a * sin`, no fused step.
#[inline(always)]
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let (a, rest) = x.split_at_mut(half);
    for (((a, b), c), s) in a.iter_mut().zip(&mut rest[..half]).zip(cos).zip(sin) {
        let (x, y) = (*a, *b);
        *a = x * c - y * s;
        *b = y * c + x * s;
    }
}
