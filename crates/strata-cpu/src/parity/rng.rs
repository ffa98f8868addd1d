//! Random numbers of the suites: the same on every machine.

use strata_ops::math::log;

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    spare: Option<f32>,
}

impl Rng {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed, spare: None }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A float in [0, 1), a multiple of 2^-24.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 16_777_216.0
    }

    /// A normal float of mean 0 and variance 1, by the polar method.
    pub fn normal(&mut self) -> f32 {
        if let Some(x) = self.spare.take() {
            return x;
        }
        loop {
            let (u, v) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let s = u * u + v * v;
            if s > 1e-12 && s < 1.0 {
                let m = (-2.0 * log(s) / s).sqrt();
                self.spare = Some(v * m);
                return u * m;
            }
        }
    }

    /// `n` normal floats times `scale`.
    pub fn normals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * scale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_a_normal() {
        let x = Rng::new(5).normals(200_000, 1.0);
        let mean = |f: fn(f64) -> f64| x.iter().map(|v| f(f64::from(*v))).sum::<f64>() / x.len() as f64;
        assert!(mean(|v| v).abs() < 0.01 && (mean(|v| v * v) - 1.0).abs() < 0.02 && (mean(|v| v.powi(4)) - 3.0).abs() < 0.1);
        assert_eq!(Rng::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }
}
