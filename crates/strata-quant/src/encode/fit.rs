//! Scales and codes by least squares.

use super::Values;
use crate::block::Integers;

/// The codes a format has.
pub(crate) trait Codec {
    /// Whether a scale may be negative.
    const SIGNED: bool;

    /// Codes to try for the value of largest magnitude: each gives a scale to start from.
    fn tries(&self) -> &[f32];

    /// Codes that are quickly found, to compare tries by.
    fn rough(&self, x: &[f32], w: &[f32], s: f32, codes: &mut [i8]) {
        self.codes(x, w, s, codes);
    }

    /// Codes near the best for values `x` at scale `s`, with weights `w`.
    fn codes(&self, x: &[f32], w: &[f32], s: f32, codes: &mut [i8]);

    /// The best codes, for those who can wait.
    fn best(&self, x: &[f32], w: &[f32], s: f32, codes: &mut [i8]) {
        self.codes(x, w, s, codes);
    }
}

/// 1 / s; 0 for scales of nothing.
pub(super) fn inverse(s: f32) -> f32 {
    if s.abs() < f32::MIN_POSITIVE { 0.0 } else { 1.0 / s }
}

/// Weighted squared error of codes at a scale.
pub(crate) fn error(x: &[f32], w: &[f32], s: f32, codes: &[i8]) -> f32 {
    x.iter().zip(w).zip(codes).map(|((x, w), c)| w * (x - s * f32::from(*c)).powi(2)).sum()
}

/// The sums of w x c and w c c.
fn sums(x: &[f32], w: &[f32], codes: &[i8]) -> (f32, f32) {
    x.iter().zip(w).zip(codes).fold((0.0, 0.0), |(xc, cc), ((x, w), c)| {
        let wc = w * f32::from(*c);
        (xc + wc * x, cc + wc * f32::from(*c))
    })
}

/// Tries that are followed, the best by rough codes.
const STARTS: usize = 3;

/// The scale and codes of least error that the tries lead to; scale 0 for zeros. At most 256 values.
pub(crate) fn fit<C: Codec>(codec: &C, x: &[f32], w: &[f32], codes: &mut [i8]) -> f32 {
    let mut extreme = x.iter().fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
    if !C::SIGNED {
        extreme = extreme.abs();
    }
    if extreme == 0.0 {
        return 0.0;
    }
    let mut trial = [0i8; 256];
    let trial = &mut trial[..x.len()];
    // what the best scale for some codes takes off the error is xc * xc / cc
    let mut starts = [(0.0, 0.0); STARTS];
    for t in codec.tries() {
        codec.rough(x, w, extreme / t, trial);
        let (xc, cc) = sums(x, w, trial);
        let mut start = (if cc > 0.0 { xc * xc / cc } else { 0.0 }, extreme / t);
        for kept in &mut starts {
            if start.0 > kept.0 {
                std::mem::swap(kept, &mut start);
            }
        }
    }
    let (mut best, mut scale) = (0.0, 0.0);
    let mut consider = |s: f32, best: &mut f32, scale: &mut f32| {
        codec.codes(x, w, s, trial);
        let (xc, cc) = sums(x, w, trial);
        let better = cc > 0.0 && (C::SIGNED || xc > 0.0) && xc * xc > *best * cc;
        if better {
            (*best, *scale) = (xc * xc / cc, xc / cc);
            codes.copy_from_slice(trial);
        }
        better
    };
    for (_, s) in starts.into_iter().filter(|s| s.1 != 0.0) {
        consider(s, &mut best, &mut scale);
    }
    for _ in 0..2 {
        if scale == 0.0 || !consider(scale, &mut best, &mut scale) {
            break;
        }
    }
    scale
}

/// The integers that sub-scales may be: from `first` to `last` by `step`. The end of larger magnitude goes to the largest scale.
#[derive(Clone, Copy)]
pub(crate) struct SubScales {
    pub first: i32,
    pub last: i32,
    pub step: i32,
}

impl SubScales {
    /// 1, 3, .. 31.
    pub const ODD: SubScales = SubScales { first: 1, last: 31, step: 2 };

    fn top(self) -> f32 {
        if self.first.abs() > self.last { self.first as f32 } else { self.last as f32 }
    }

    /// The nearest to a number, and its neighbours.
    fn near(self, v: f32) -> impl Iterator<Item = i32> {
        let steps = (self.last - self.first) / self.step;
        let k = ((v - self.first as f32) / self.step as f32).round() as i32;
        let k = k.clamp(0, steps);
        ((k - 1).max(0)..=(k + 1).min(steps)).map(move |k| self.first + k * self.step)
    }
}

/// A block of 256 values with `SUBS` sub-scales. The stored scale is `unit` times that of the integers. `None` where it rounds to
/// zero.
pub(crate) fn super_block<C: Codec, const SUBS: usize>(
    codec: &C,
    v: &Values<256>,
    allowed: SubScales,
    unit: f32,
) -> Option<Integers<256, SUBS, 1>> {
    let span = 256 / SUBS;
    let mut codes = [0; 256];
    let parts = |j: usize| (&v.x[j * span..][..span], &v.w[j * span..][..span]);
    let scales: [f32; SUBS] = std::array::from_fn(|j| fit(codec, parts(j).0, parts(j).1, &mut codes[j * span..][..span]));
    let top = scales.iter().fold(0.0f32, |m, &s| if s.abs() > m.abs() { s } else { m });
    let mut d = top / allowed.top();
    let mut best: Option<(f32, f32, Integers<256, SUBS, 1>)> = None;
    for _ in 0..4 {
        let rounded = v.half(d, unit);
        if rounded.scale == 0.0 {
            break;
        }
        let mut block = Integers::scaled(rounded.scale, [0; SUBS], [0; 256]);
        let (mut total, mut xc, mut cc) = (0.0, 0.0, 0.0);
        for (j, fit) in scales.iter().enumerate() {
            let (x, w) = parts(j);
            let codes = &mut block.codes[j * span..][..span];
            let mut least = f32::INFINITY;
            let mut trial = [0i8; 256];
            let trial = &mut trial[..span];
            for sub in allowed.near(fit / rounded.d) {
                let s = rounded.d * sub as f32;
                codec.codes(x, w, s, trial);
                let error = error(x, w, s, trial);
                if error < least {
                    least = error;
                    block.subs[j] = sub as i8;
                    codes.copy_from_slice(trial);
                }
            }
            let (a, b) = sums(x, w, codes);
            let sub = f32::from(block.subs[j]);
            (total, xc, cc) = (total + least, xc + a * sub, cc + b * sub * sub);
        }
        if best.as_ref().is_some_and(|(least, ..)| total >= *least) {
            break;
        }
        best = Some((total, rounded.d, block));
        if cc <= 0.0 {
            break;
        }
        d = xc / cc;
    }
    let (_, d, mut block) = best?;
    for j in 0..SUBS {
        let (x, w) = parts(j);
        codec.best(x, w, d * f32::from(block.subs[j]), &mut block.codes[j * span..][..span]);
    }
    Some(block)
}
