//! Multiply-adds that this machine does at most: chains of them on registers, and nothing else.

use crate::pool::Pool;
use crate::simd::Simd;
use std::hint::black_box;
use std::time::Instant;

/// Rounds of a kernel between looks at the clock: some tens of microseconds.
const ROUNDS: usize = 1 << 14;

/// Multiply-adds a second on all threads of `pool` together, of `f32` numbers and of 8-bit integers into 32-bit sums: the best of
/// `rounds` measurements of some milliseconds.
pub fn multiply_adds(pool: &Pool, simd: Simd, rounds: usize) -> [f64; 2] {
    [measure(pool, rounds, pick(simd).0), measure(pool, rounds, pick(simd).1)]
}

/// A kernel and the multiply-adds of one of its rounds.
type Kernel = (unsafe fn(usize), f64);

fn measure(pool: &Pool, rounds: usize, (kernel, each): Kernel) -> f64 {
    const CALLS: usize = 64;
    let threads = pool.threads();
    let call = || {
        let start = Instant::now();
        pool.run(threads, &|_, _| {
            for _ in 0..CALLS {
                // SAFETY: the level was picked for this CPU.
                unsafe { kernel(black_box(ROUNDS)) };
            }
        });
        (threads * CALLS * ROUNDS) as f64 * each / start.elapsed().as_secs_f64()
    };
    call();
    (0..rounds.max(1)).map(|_| call()).fold(0.0, f64::max)
}

/// The kernels of a level: floats, integers.
fn pick(simd: Simd) -> (Kernel, Kernel) {
    assert!(Simd::available().contains(&simd), "this CPU does not have {}", simd.name());
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => ((x86::floats_avx2, 96.0), (x86::integers_avx2, 384.0)),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => ((x86::floats_avx512, 192.0), (x86::integers_avx512, 768.0)),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512Vnni | Simd::Avx512Vbmi => ((x86::floats_avx512, 192.0), (x86::integers_vnni, 768.0)),
        _ => ((floats_scalar, 8.0), (integers_scalar, 8.0)),
    }
}

unsafe fn floats_scalar(rounds: usize) {
    let (x, y) = (black_box(1.0f32), black_box(1e-9f32));
    let mut sums = [0.0f32; 8];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|s| *s = x.mul_add(y, black_box(*s)));
    }
    black_box(sums);
}

unsafe fn integers_scalar(rounds: usize) {
    let (x, y) = (black_box(3i8), black_box(-5i8));
    let mut sums = [0i32; 8];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|s| *s = black_box(*s).wrapping_add(i32::from(x) * i32::from(y)));
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Sums that are under way at once: more than latency times instructions a cycle.
    const CHAINS: usize = 12;

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn floats_avx2(rounds: usize) {
        let (x, y) = (_mm256_set1_ps(black_box(1.0)), _mm256_set1_ps(black_box(1e-9)));
        let mut sums = [_mm256_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            sums.iter_mut().for_each(|s| *s = _mm256_fmadd_ps(x, y, *s));
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn integers_avx2(rounds: usize) {
        let (one, y) = (_mm256_set1_epi16(black_box(1)), _mm256_set1_epi8(black_box(-5)));
        let mut sums = [_mm256_setzero_si256(); CHAINS];
        for _ in 0..rounds {
            sums.iter_mut().for_each(|s| *s = _mm256_add_epi32(*s, _mm256_madd_epi16(_mm256_maddubs_epi16(*s, y), one)));
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn floats_avx512(rounds: usize) {
        let (x, y) = (_mm512_set1_ps(black_box(1.0)), _mm512_set1_ps(black_box(1e-9)));
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            sums.iter_mut().for_each(|s| *s = _mm512_fmadd_ps(x, y, *s));
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn integers_avx512(rounds: usize) {
        let one = _mm512_set1_epi16(black_box(1));
        let y = _mm512_set1_epi8(black_box(-5));
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..rounds {
            sums.iter_mut().for_each(|s| *s = _mm512_add_epi32(*s, _mm512_madd_epi16(_mm512_maddubs_epi16(*s, y), one)));
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub unsafe fn integers_vnni(rounds: usize) {
        let (x, y) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(-5)));
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..rounds {
            sums.iter_mut().for_each(|s| *s = _mm512_dpbusd_epi32(*s, x, y));
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_a_peak_above_nothing_and_below_reason() {
        let pool = Pool::new(1);
        for level in Simd::available() {
            for rate in multiply_adds(&pool, level, 1) {
                assert!(rate.is_finite() && rate > 1e6 && rate < 1e13, "{}: {rate}", level.name());
            }
        }
    }
}
