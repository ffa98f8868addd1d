//! Formats with minima: value = scale * code - minimum.

use super::Values;
use super::fit::inverse;
use super::linear::round;
use crate::block::Integers;

/// Codes of `x` at scale `s` and minimum `m`: 0 to `top`.
pub(crate) fn codes(x: &[f32], s: f32, m: f32, top: f32, codes: &mut [i8]) {
    let inverse = inverse(s);
    for (c, x) in codes.iter_mut().zip(x) {
        *c = round(((x + m) * inverse).clamp(0.0, top)) as i32 as i8;
    }
}

/// Weighted squared error of codes.
fn error(x: &[f32], w: &[f32], s: f32, m: f32, codes: &[i8]) -> f32 {
    x.iter().zip(w).zip(codes).map(|((x, w), c)| w * (x - (s * f32::from(*c) - m)).powi(2)).sum()
}

/// Sums for a fit of x by s * a - m * b.
#[derive(Default)]
struct Normal {
    aa: f64,
    ab: f64,
    bb: f64,
    xa: f64,
    xb: f64,
}

impl Normal {
    fn add(&mut self, x: &[f32], w: &[f32], codes: &[i8], sub: f32, min: f32) {
        for ((x, w), c) in x.iter().zip(w).zip(codes) {
            let (x, w, a, b) = (f64::from(*x), f64::from(*w), f64::from(sub * f32::from(*c)), f64::from(min));
            self.aa += w * a * a;
            self.ab += w * a * b;
            self.bb += w * b * b;
            self.xa += w * x * a;
            self.xb += w * x * b;
        }
    }

    /// The best s and m; m is not below 0 unless it is `free`.
    fn solve(&self, free: bool) -> Option<(f32, f32)> {
        let det = self.aa * self.bb - self.ab * self.ab;
        if det > 1e-9 * self.aa * self.bb {
            let s = (self.bb * self.xa - self.ab * self.xb) / det;
            let m = (self.ab * self.xa - self.aa * self.xb) / det;
            if free || m >= 0.0 {
                return Some((s as f32, m as f32));
            }
        }
        (self.aa > 0.0).then(|| ((self.xa / self.aa) as f32, 0.0))
    }
}

/// Scale and minimum for codes 0 to `top`; the minimum is not below 0 unless it is `free`.
pub(crate) fn fit_offset(x: &[f32], w: &[f32], top: f32, free: bool) -> (f32, f32) {
    let low = x.iter().fold(f32::INFINITY, |m, &x| m.min(x));
    let high = x.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
    let low = if free { low } else { low.min(0.0) };
    if high <= low {
        return (0.0, -low);
    }
    let mut trial = [0i8; 256];
    let trial = &mut trial[..x.len()];
    let mut best = (f32::INFINITY, 0.0, 0.0);
    for k in -10..=12 {
        let s = (high - low) / (top + k as f32 * 0.1);
        let mut found = (s, -low);
        // codes, then what suits them, twice
        for _ in 0..2 {
            codes(x, found.0, found.1, top, trial);
            let mut normal = Normal::default();
            normal.add(x, w, trial, 1.0, 1.0);
            let Some(next) = normal.solve(free).filter(|n| n.0 > 0.0) else { break };
            found = next;
            let error = error(x, w, found.0, found.1, trial);
            if error < best.0 {
                best = (error, found.0, found.1);
            }
        }
    }
    (best.1, best.2)
}

/// A block of 256 values with sub-scales and minima from 0 to `sub_top` and codes from 0 to `top`: scale of the minima and block.
pub(crate) fn super_block_with_minima<const SUBS: usize>(v: &Values<256>, top: f32, sub_top: i32) -> Option<Integers<256, SUBS, 1>> {
    let span = 256 / SUBS;
    let parts = |j: usize| (&v.x[j * span..][..span], &v.w[j * span..][..span]);
    let fits: [(f32, f32); SUBS] = std::array::from_fn(|j| fit_offset(parts(j).0, parts(j).1, top, false));
    let largest = |f: fn(&(f32, f32)) -> f32| fits.iter().map(f).fold(0.0f32, f32::max) / sub_top as f32;
    let (mut d, mut dmin) = (largest(|f| f.0), largest(|f| f.1));
    let mut best: Option<(f32, Integers<256, SUBS, 1>)> = None;
    let near = |v: f32| {
        let k = (v.round() as i32).clamp(0, sub_top);
        (k - 1).max(0)..=(k + 1).min(sub_top)
    };
    for _ in 0..4 {
        let (scale, min_scale) = (v.half(d, 1.0), v.half(dmin, 1.0));
        let mut block = Integers { dmin: min_scale.scale, mins: [0; SUBS], ..Integers::scaled(scale.scale, [0; SUBS], [0; 256]) };
        let (mut total, mut normal) = (0.0, Normal::default());
        for (j, fit) in fits.iter().enumerate() {
            let (x, w) = parts(j);
            let to = &mut block.codes[j * span..][..span];
            let mut trial = [0i8; 256];
            let trial = &mut trial[..span];
            let mut least = f32::INFINITY;
            for sub in near(fit.0 * inverse(scale.d)) {
                for min in near(fit.1 * inverse(min_scale.d)) {
                    let (s, m) = (scale.d * sub as f32, min_scale.d * min as f32);
                    codes(x, s, m, top, trial);
                    let error = error(x, w, s, m, trial);
                    if error < least {
                        least = error;
                        (block.subs[j], block.mins[j]) = (sub as i8, min as u8);
                        to.copy_from_slice(trial);
                    }
                }
            }
            total += least;
            normal.add(x, w, to, f32::from(block.subs[j]), f32::from(block.mins[j]));
        }
        if best.as_ref().is_some_and(|(least, _)| total >= *least) {
            break;
        }
        best = Some((total, block));
        let Some(next) = normal.solve(false).filter(|n| n.0 > 0.0) else { break };
        (d, dmin) = next;
    }
    best.map(|(_, block)| block)
}
