//! Integer digits: a float row as 24-bit integers under one scale, split into three balanced bytes, so that its
//! products with int8 codes sum exactly (NUMERICS.md section 3).

/// Largest integer of a row: 127 * (65536 + 256 + 1), the value whose three digits are all 127.
pub const DIGIT_MAX: f32 = 8_355_711.0;

/// Below this largest magnitude (2^-100) a row counts as zero.
pub const AMAX_MIN: f32 = f32::from_bits((127 - 100) << 23);

/// Largest magnitude of a row; NaN is skipped, so the order is free.
#[inline(always)]
pub fn amax(x: &[f32]) -> f32 {
    let mut m = 0.0f32;
    for v in x {
        let a = v.abs();
        m = if a > m { a } else { m };
    }
    m
}

/// The scale of a row of largest magnitude `amax` and the factor that makes integers: `(amax / DIGIT_MAX,
/// DIGIT_MAX / amax)`, or `(0, 0)` below [`AMAX_MIN`].
#[inline(always)]
pub fn scale_of(amax: f32) -> (f32, f32) {
    if amax < AMAX_MIN { (0.0, 0.0) } else { (amax / DIGIT_MAX, DIGIT_MAX / amax) }
}

/// `rint_even(x * factor)` held within +-[`DIGIT_MAX`]; 0 where the product is NaN.
#[inline(always)]
pub fn integer(x: f32, factor: f32) -> i32 {
    let v = (x * factor).round_ties_even();
    let v = if v > DIGIT_MAX { DIGIT_MAX } else { v };
    let v = if v < -DIGIT_MAX { -DIGIT_MAX } else { v };
    let v = if v.is_nan() { 0.0 } else { v };
    // SAFETY: not NaN and within +-DIGIT_MAX, which an i32 holds.
    unsafe { v.to_int_unchecked() }
}

/// The balanced low digit `d0` in -128..=127 and the rest `d12 = d1 + 256 d2` (within +-32640) of an integer within
/// +-[`DIGIT_MAX`]: `n = d0 + 256 d12`.
#[inline(always)]
pub fn split(n: i32) -> (i16, i16) {
    let low = i32::from(n as i8);
    (low as i16, ((n - low) >> 8) as i16)
}

/// The three balanced digits `n = d0 + 256 d1 + 65536 d2`, each in -128..=127.
#[inline(always)]
pub fn digits(n: i32) -> [i8; 3] {
    let (d0, d12) = split(n);
    let (d1, d2) = split(i32::from(d12));
    [d0 as i8, d1 as i8, d2 as i8]
}

/// The float of three exact digit dots: `fma(256, f32(s12), f32(s0))`, `s12 = s1 + 256 s2`.
#[inline(always)]
pub fn join(s0: i32, s12: i32) -> f32 {
    256.0f32.mul_add(s12 as f32, s0 as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_rebuild_every_integer() {
        let max = DIGIT_MAX as i32;
        for n in (-max..=max).step_by(7).chain([max, -max, 0, 127, 128, -128, -129, 32640, -32640]) {
            let d = digits(n);
            assert_eq!(i32::from(d[0]) + 256 * i32::from(d[1]) + 65536 * i32::from(d[2]), n);
            let (d0, d12) = split(n);
            assert_eq!(i32::from(d0) + 256 * i32::from(d12), n);
            assert!((-32640..=32640).contains(&d12));
        }
        assert_eq!(digits(max), [127; 3]);
        assert_eq!(digits(-max), [-127; 3]);
    }

    #[test]
    fn integers_are_held_in_range() {
        for a in [1.0f32, 3.7, 1e-20, 5e20, 0.333_333_34] {
            let (_, f) = scale_of(a);
            assert!((integer(a, f) - 8_355_711).abs() <= 1 && integer(a, f) <= 8_355_711);
            assert_eq!(integer(-a, f), -integer(a, f));
        }
        assert_eq!(scale_of(f32::MIN_POSITIVE), (0.0, 0.0));
        assert_eq!(integer(f32::NAN, 1.0), 0);
        assert_eq!(integer(f32::INFINITY, 1.0), 8_355_711);
        assert_eq!(amax(&[1.0, f32::NAN, -3.0]), 3.0);
    }
}
