//! Rotary position embedding: tables built on the host, and the rotation.

use std::collections::TryReserveError;

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
    inv_freq: Vec<f32>,
    attention_factor: f32,
    capacity: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// Positions that a table grows by, at least: growing costs nothing that is felt, token by token too.
const GROWTH: usize = 64;

impl RopeTable {
    /// Tables for positions `0..positions`, `dims` rotated dimensions of base `theta`.
    ///
    /// The angle is `f32(pos) * inv_freq`, each rounded to `f32`; its cos and sin are taken in `f64` by `libm`,
    /// multiplied by the attention factor (1 without YaRN) and rounded to `f32`.
    pub fn new(positions: usize, dims: usize, theta: f32, scaling: RopeScaling) -> RopeTable {
        let mut table = RopeTable::growing(positions, dims, theta, scaling).unwrap_or_else(|e| panic!("{positions} positions: {e}"));
        table.grow(positions);
        table
    }

    /// An empty table with the memory for positions `0..capacity`, which [`RopeTable::grow`] fills as they are needed: the
    /// functions of a million positions take ten seconds.
    ///
    /// # Errors
    /// There is not that much memory.
    pub fn growing(capacity: usize, dims: usize, theta: f32, scaling: RopeScaling) -> Result<RopeTable, TryReserveError> {
        let (inv_freq, attention_factor) = inverse_frequencies(dims, theta, scaling);
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let values = capacity.saturating_mul(inv_freq.len());
        cos.try_reserve_exact(values)?;
        sin.try_reserve_exact(values)?;
        Ok(RopeTable { inv_freq, attention_factor, capacity, cos, sin })
    }

    /// Fills the table up to `positions` and some more, its capacity at most. Allocates nothing.
    pub fn grow(&mut self, positions: usize) {
        let held = self.positions();
        if positions <= held {
            return;
        }
        for pos in held..positions.next_multiple_of(GROWTH).min(self.capacity) {
            for f in &self.inv_freq {
                let angle = f64::from(pos as f32 * f);
                self.cos.push(libm::cos(angle) as f32 * self.attention_factor);
                self.sin.push(libm::sin(angle) as f32 * self.attention_factor);
            }
        }
    }

    /// Rotated dimensions: values a position, cos and sin together.
    pub fn dims(&self) -> usize {
        2 * self.inv_freq.len()
    }

    /// Positions the table holds.
    pub fn positions(&self) -> usize {
        self.cos.len() / self.inv_freq.len().max(1)
    }

    /// cos and sin of one position, `dims / 2` each.
    #[inline(always)]
    pub fn at(&self, pos: usize) -> (&[f32], &[f32]) {
        let half = self.inv_freq.len();
        let r = pos * half..(pos + 1) * half;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_grows_is_the_whole_one() {
        let yarn = RopeScaling::Yarn { factor: 4.0, original_context: 32, beta_fast: 32.0, beta_slow: 1.0, attention_factor: None };
        let whole = RopeTable::new(301, 64, 1e7, yarn);
        let mut grown = RopeTable::growing(301, 64, 1e7, yarn).unwrap();
        let (cos, sin) = (grown.cos.capacity(), grown.sin.capacity());
        for to in [1, 2, 64, 65, 200, 301] {
            grown.grow(to);
            assert!((to..to + GROWTH).contains(&grown.positions()), "{to}");
            for pos in 0..grown.positions() {
                let (a, b) = (grown.at(pos), whole.at(pos));
                let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!((bits(a.0), bits(a.1)), (bits(b.0), bits(b.1)), "{pos}");
            }
        }
        assert_eq!(grown.positions(), 301);
        assert_eq!((grown.cos.capacity(), grown.sin.capacity()), (cos, sin), "nothing was allocated");
        assert!(RopeTable::growing(usize::MAX, 64, 1e7, yarn).is_err());
    }
}
