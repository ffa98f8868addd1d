//! Codes that are groups of magnitudes from a codebook, with signs.

use super::fit::{Codec, inverse};

/// Entries looked at near a point that is none itself.
const NEAR: usize = 24;

/// A codebook of `ENTRIES` groups of `N` magnitudes.
pub(crate) struct Grid<const N: usize> {
    codes: &'static [[i8; N]],
    entries: Vec<[f32; N]>,
    /// The same, eight entries side by side.
    eights: Vec<[[f32; 8]; N]>,
    /// Ascending magnitudes.
    levels: &'static [i8],
    middles: Vec<f32>,
    /// By the point of nearest magnitudes: the entry that it is, or [`NEAR`] entries, the nearest first.
    near: Vec<Near>,
    tries: Vec<f32>,
    /// The number of negative values of every eight is even.
    even: bool,
}

enum Near {
    Exact(u16),
    Some([u16; NEAR]),
}

impl<const N: usize> Grid<N> {
    pub fn new(codes: &'static [[i8; N]], levels: &'static [i8], even: bool) -> Grid<N> {
        let entries: Vec<[f32; N]> = codes.iter().map(|e| e.map(f32::from)).collect();
        let top = f32::from(levels[levels.len() - 1]);
        let eights = entries.as_chunks::<8>().0.iter().map(|e| std::array::from_fn(|i| std::array::from_fn(|l| e[l][i]))).collect();
        let mut grid = Grid {
            codes,
            entries,
            eights,
            levels,
            middles: levels.windows(2).map(|v| (f32::from(v[0]) + f32::from(v[1])) / 2.0).collect(),
            near: Vec::new(),
            tries: (0..14).map(|k| top * (0.55 + 0.05 * k as f32)).collect(),
            even,
        };
        grid.near = (0..levels.len().pow(N as u32)).map(|point| grid.near(point)).collect();
        grid
    }

    fn near(&self, mut point: usize) -> Near {
        let point: [f32; N] = std::array::from_fn(|_| {
            let level = self.levels[point % self.levels.len()];
            point /= self.levels.len();
            f32::from(level)
        });
        let distance = |e: &[f32; N]| e.iter().zip(&point).map(|(a, b)| ((a - b) * (a - b)) as u32).sum::<u32>();
        let mut all: Vec<(u32, u16)> = (0..).zip(&self.entries).map(|(i, e)| (distance(e), i)).collect();
        let (before, last, _) = all.select_nth_unstable(NEAR - 1);
        before.sort_unstable();
        match before[0] {
            (0, i) => Near::Exact(i),
            _ => Near::Some(std::array::from_fn(|k| before.get(k).unwrap_or(last).1)),
        }
    }

    /// The entry with the magnitudes of these codes.
    pub fn index(&self, codes: &[i8]) -> usize {
        let point = codes.iter().rev().fold(0, |p, c| p * self.levels.len() + self.levels.partition_point(|l| *l < c.abs()));
        match self.near[point] {
            Near::Exact(i) => usize::from(i),
            Near::Some(_) => unreachable!("codes come from the codebook"),
        }
    }

    /// The entry of least error, for values already divided by the scale.
    fn least(&self, t: &[f32; N], w: &[f32; N]) -> usize {
        let mut best = (f32::INFINITY, 0);
        for (k, eight) in self.eights.iter().enumerate() {
            let mut errors = [0.0f32; 8];
            for i in 0..N {
                for l in 0..8 {
                    let e = t[i] - eight[i][l];
                    errors[l] += w[i] * e * e;
                }
            }
            let least = errors.iter().fold(f32::INFINITY, |m, e| m.min(*e));
            if least < best.0 {
                best = (least, 8 * k + errors.iter().position(|e| *e == least).unwrap_or(0));
            }
        }
        best.1
    }

    /// The entry of least error among those near; of all of them if need be.
    fn group(&self, t: &[f32; N], w: &[f32; N], all: bool) -> usize {
        if all {
            return self.least(t, w);
        }
        let point = t.iter().rev().fold(0, |p, t| {
            let level: usize = self.middles.iter().map(|m| usize::from(t > m)).sum();
            p * self.levels.len() + level
        });
        match &self.near[point] {
            // no entry is nearer in any of its values
            Near::Exact(i) => usize::from(*i),
            Near::Some(near) => {
                let mut best = (f32::INFINITY, 0);
                for &i in near {
                    let i = usize::from(i);
                    let error: f32 = self.entries[i].iter().zip(t).zip(w).map(|((g, t), w)| w * (t - g) * (t - g)).sum();
                    if error < best.0 {
                        best = (error, i);
                    }
                }
                best.1
            }
        }
    }

    fn search(&self, x: &[f32], w: &[f32], s: f32, codes: &mut [i8], all: bool) {
        let inverse = inverse(s);
        let eights = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0);
        for ((x, w), codes) in eights.zip(codes.as_chunks_mut::<8>().0) {
            let mut negative = x.map(|x| x < 0.0);
            let mut t = x.map(|x| x.abs() * inverse);
            if self.even && negative.iter().filter(|n| **n).count() % 2 == 1 {
                // the wrong sign costs least where weight times magnitude is least; there the smallest magnitude is wanted
                let cost = |i: usize| w[i] * t[i];
                let i = (1..8).fold(0, |m, i| if cost(i) < cost(m) { i } else { m });
                negative[i] = !negative[i];
                t[i] = -t[i];
            }
            let groups = t.as_chunks::<N>().0.iter().zip(w.as_chunks::<N>().0);
            for (((t, w), codes), negative) in groups.zip(codes.as_chunks_mut::<N>().0).zip(negative.as_chunks::<N>().0) {
                let entry = self.codes[self.group(t, w, all)];
                *codes = std::array::from_fn(|i| if negative[i] { -entry[i] } else { entry[i] });
            }
        }
    }
}

impl<const N: usize> Codec for Grid<N> {
    const SIGNED: bool = false;

    fn tries(&self) -> &[f32] {
        &self.tries
    }

    /// The nearest magnitudes, be they together in an entry or not.
    fn rough(&self, x: &[f32], _: &[f32], s: f32, codes: &mut [i8]) {
        let inverse = inverse(s);
        for (c, x) in codes.iter_mut().zip(x) {
            let t = x.abs() * inverse;
            let level: usize = self.middles.iter().map(|m| usize::from(t > *m)).sum();
            *c = if *x < 0.0 { -self.levels[level] } else { self.levels[level] };
        }
    }

    fn codes(&self, x: &[f32], w: &[f32], s: f32, codes: &mut [i8]) {
        self.search(x, w, s, codes, false);
    }

    fn best(&self, x: &[f32], w: &[f32], s: f32, codes: &mut [i8]) {
        self.search(x, w, s, codes, true);
    }
}
