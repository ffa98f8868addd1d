//! The orthonormal Walsh-Hadamard rotation of 256-wide rows. It spreads outliers before 4-bit rounding and is its
//! own inverse.

use super::HEAD_DIM;

/// Rotates in place: every value times 1/16, then butterflies of distance 1, 2, 4, ..., 128.
#[inline(always)]
pub fn hadamard_in_place(x: &mut [f32; HEAD_DIM]) {
    for v in x.iter_mut() {
        *v *= 0.0625;
    }
    step::<1>(x);
    step::<2>(x);
    step::<4>(x);
    step::<8>(x);
    step::<16>(x);
    step::<32>(x);
    step::<64>(x);
    step::<128>(x);
}

#[inline(always)]
fn step<const H: usize>(x: &mut [f32; HEAD_DIM]) {
    for base in (0..HEAD_DIM).step_by(2 * H) {
        for i in base..base + H {
            let (a, b) = (x[i], x[i + H]);
            x[i] = a + b;
            x[i + H] = a - b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_its_own_inverse_and_keeps_the_norm() {
        let x: [f32; HEAD_DIM] = std::array::from_fn(|i| ((i * 37 % 101) as f32 - 50.0) * 0.03);
        let mut y = x;
        hadamard_in_place(&mut y);
        let norm = |v: &[f32]| v.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>();
        assert!((norm(&x) - norm(&y)).abs() < 1e-5 * norm(&x));
        // entry (i, j) of the matrix is (-1)^popcount(i & j) / 16
        for i in [0usize, 1, 77, 255] {
            let want: f64 = (0..HEAD_DIM).map(|j| f64::from(x[j]) * if (i & j).count_ones() % 2 == 0 { 0.0625 } else { -0.0625 }).sum();
            assert!((f64::from(y[i]) - want).abs() < 1e-5, "{i}: {} {want}", y[i]);
        }
        hadamard_in_place(&mut y);
        assert!(x.iter().zip(&y).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}
