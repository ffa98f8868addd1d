//! Elementary functions: one polynomial each, written in fused multiply-adds (NUMERICS.md section 1).
//!
//! All are branch-free apart from selects, so that a compiler may vectorise them without changing a bit.

// published coefficients keep their digits
#![allow(clippy::excessive_precision)]

/// exp(x) is +0 below this by definition.
pub const EXP_MIN: f32 = -87.0;
/// exp(x) is +infinity above this.
pub const EXP_MAX: f32 = 88.722_83;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: the high one has 9 significant bits, so n * LN2_HI is exact.
const LN2_HI: f32 = 0.693_359_375;
const LN2_LO: f32 = -2.121_944_4e-4;
/// 1.5 * 2^23: adding it rounds a small float to an integer, ties to even, in the low mantissa bits.
const ROUND_MAGIC: f32 = 12_582_912.0;

/// e^x. Error at most 1 ulp (measured in the tests over every 64th float of the range).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let shifted = x.mul_add(LOG2_E, ROUND_MAGIC);
    let n = shifted - ROUND_MAGIC;
    let k = (shifted.to_bits() as i32).wrapping_sub(ROUND_MAGIC.to_bits() as i32);
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, x));
    let p = 1.987_569_15e-4_f32
        .mul_add(r, 1.398_199_95e-3)
        .mul_add(r, 8.333_451_9e-3)
        .mul_add(r, 4.166_579_6e-2)
        .mul_add(r, 1.666_666_55e-1)
        .mul_add(r, 5.000_000_1e-1);
    let e = (p * r).mul_add(r, r) + 1.0;
    // 2^k in two factors: k reaches 128, whose power alone would overflow
    let half = k >> 1;
    let y = e * pow2(half) * pow2(k.wrapping_sub(half));
    let y = if x < EXP_MIN { 0.0 } else { y };
    let y = if x > EXP_MAX { f32::INFINITY } else { y };
    if x.is_nan() { x } else { y }
}

/// 2^k for k in -126..=127 (other values give other floats, never a panic).
#[inline(always)]
fn pow2(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// Natural logarithm of a positive, normal, finite number. Error at most 1 ulp.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2))
    let bits = x.to_bits();
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let e = (shifted as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e as u32) << 23));
    let e = e as f32;
    let f = m - 1.0;
    let z = f * f;
    let p = 7.037_683_6e-2_f32
        .mul_add(f, -1.151_461e-1)
        .mul_add(f, 1.167_699_9e-1)
        .mul_add(f, -1.242_014_1e-1)
        .mul_add(f, 1.424_932_3e-1)
        .mul_add(f, -1.666_805_8e-1)
        .mul_add(f, 2.000_071_5e-1)
        .mul_add(f, -2.499_999_4e-1)
        .mul_add(f, 3.333_333_1e-1);
    let y = (p * f).mul_add(z, e * LN2_LO);
    let y = z.mul_add(-0.5, y);
    e.mul_add(LN2_HI, f + y)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x / (1 + e^-x).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// ln(1 + e^x), as max(x, 0) + ln(1 + e^-|x|).
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let u = exp(-x.abs());
    let w = 1.0 + u;
    // w = 1 + u lost d = u - (w - 1) in the rounding; ln(w + d) = ln(w) + d / w
    let tail = log(w) + (u - (w - 1.0)) / w;
    (if x > 0.0 { x } else { 0.0 }) + tail
}

/// Sum of a lane array by the xor butterfly `L/2, ..., 2, 1`, lane 0.
#[inline(always)]
pub fn butterfly<const L: usize>(mut p: [f32; L]) -> f32 {
    let mut half = L / 2;
    while half > 0 {
        for i in 0..half {
            p[i] += p[i + half];
        }
        half /= 2;
    }
    p[0]
}

/// Lane-tree sum of squares, 32 lanes.
#[inline(always)]
pub fn sum_squares(x: &[f32]) -> f32 {
    let mut p = [0.0f32; 32];
    let (body, tail) = x.as_chunks::<32>();
    for c in body {
        for l in 0..32 {
            p[l] = c[l].mul_add(c[l], p[l]);
        }
    }
    for (l, v) in tail.iter().enumerate() {
        p[l] = v.mul_add(*v, p[l]);
    }
    butterfly(p)
}

/// Lane-tree dot product with `L` lanes. The slices have one length.
#[inline(always)]
pub fn dot<const L: usize>(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut p = [0.0f32; L];
    let (body_a, tail_a) = a.as_chunks::<L>();
    let (body_b, tail_b) = b.as_chunks::<L>();
    for (x, y) in body_a.iter().zip(body_b) {
        for l in 0..L {
            p[l] = x[l].mul_add(y[l], p[l]);
        }
    }
    for (l, (x, y)) in tail_a.iter().zip(tail_b).enumerate() {
        p[l] = x.mul_add(*y, p[l]);
    }
    butterfly(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error of `got` in units in the last place of the exact value.
    fn ulps(got: f32, want: f64) -> f64 {
        let ulp = {
            let w = want.abs() as f32;
            (f32::from_bits(w.to_bits() + 1) - w) as f64
        };
        (got as f64 - want).abs() / ulp
    }

    fn worst(range: impl Iterator<Item = f32>, f: fn(f32) -> f32, exact: fn(f64) -> f64) -> (f64, f32) {
        range.map(|x| (ulps(f(x), exact(x as f64)), x)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    }

    fn floats(from: f32, to: f32, step: usize) -> impl Iterator<Item = f32> {
        (from.to_bits()..to.to_bits()).step_by(step).map(f32::from_bits)
    }

    #[test]
    fn exp_is_within_its_stated_error() {
        let up = worst(floats(1e-9, EXP_MAX, 64), exp, libm::exp);
        let down = worst(floats(1e-9, -EXP_MIN, 64).map(|x| -x), exp, libm::exp);
        println!("exp: {up:?} {down:?}");
        assert!(up.0 <= 1.1 && down.0 <= 1.1);
    }

    #[test]
    fn exp_edges() {
        assert_eq!(exp(0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(exp(-0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(exp(-87.1).to_bits(), 0);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert!(exp(EXP_MAX).is_finite());
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-f32::MAX) == 0.0 && exp(f32::MAX) == f32::INFINITY);
    }

    #[test]
    fn log_is_within_its_stated_error() {
        let w = worst(floats(f32::MIN_POSITIVE, 1e38, 256), log, libm::log);
        println!("log: {w:?}");
        assert!(w.0 <= 1.1);
        assert_eq!(log(1.0), 0.0);
    }

    #[test]
    fn sigmoid_silu_softplus_are_within_their_stated_errors() {
        let both = || floats(1e-6, 80.0, 997).flat_map(|x| [x, -x]);
        let s = worst(both(), sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)));
        let u = worst(both(), silu, |x| x / (1.0 + libm::exp(-x)));
        let p = worst(both(), softplus, |x| libm::log1p(libm::exp(x)));
        println!("sigmoid {s:?} silu {u:?} softplus {p:?}");
        assert!(s.0 <= 2.5 && u.0 <= 2.5 && p.0 <= 2.5);
        assert_eq!(silu(-100.0), 0.0);
        assert_eq!(sigmoid(100.0), 1.0);
    }

    #[test]
    fn lane_trees_follow_their_definition() {
        let a: Vec<f32> = (0..77).map(|i| ((i * 37 % 19) as f32 - 9.0) * 0.37).collect();
        let b: Vec<f32> = (0..77).map(|i| ((i * 11 % 23) as f32 - 7.0) * 0.11).collect();
        let mut p = [0.0f32; 8];
        for i in 0..77 {
            p[i % 8] = a[i].mul_add(b[i], p[i % 8]);
        }
        let want = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
        assert_eq!(dot::<8>(&a, &b).to_bits(), want.to_bits());
        assert_eq!(sum_squares(&a).to_bits(), dot::<32>(&a, &a).to_bits());
    }
}
