//! The scan of [`strata_ops::gdn::scan_block`] with the partial sums held in registers.
//!
//! Eight lanes of partial sums, each a vector of columns, take eight registers; a compiler left to itself keeps them in
//! memory, which is ten times slower.

use std::arch::x86_64::*;
use strata_ops::gdn::{COLUMNS, Columns, LANES, Scan};

/// Defines the scan for one vector width.
macro_rules! scan {
    ($name:ident, $features:literal, $n:literal, $zero:ident, $set:ident, $load:ident, $store:ident, $mul:ident, $add:ident, $sub:ident, $fma:ident) => {
        /// [`strata_ops::gdn::scan_block`] at this level.
        ///
        /// # Safety
        /// The CPU has the features.
        #[target_feature(enable = $features)]
        pub unsafe fn $name(s: &Scan<'_>, state: &mut [f32], out: Option<Columns>) {
            assert!(state.len() == s.key_dim * COLUMNS && s.key_dim % LANES == 0);
            // the block behind this one, which is mostly the next, is sent for: states of many sequences are in no near cache
            let behind = state.len();
            for first in (0..COLUMNS).step_by($n) {
                for t in 0..s.rows {
                    let row = &s.qkv[t * s.stride..(t + 1) * s.stride];
                    let k = &row[s.k..s.k + s.key_dim];
                    let q = &row[s.q..s.q + s.key_dim];
                    let v = &row[s.v + first..s.v + first + $n];
                    // SAFETY: rows of the state are `COLUMNS` wide and `first + n` is at most that; `v` has n values;
                    // keys and queries have `key_dim`, a multiple of `LANES`.
                    let o = unsafe {
                        let at = state.as_mut_ptr().add(first);
                        let decay = $set(s.decay[t * s.heads + s.head]);
                        let mut p = [$zero(); LANES];
                        for i in (0..s.key_dim).step_by(LANES) {
                            for l in 0..LANES {
                                let cell = at.add((i + l) * COLUMNS);
                                if t == 0 && first == 0 {
                                    _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(behind).cast());
                                }
                                let x = $mul(decay, $load(cell));
                                p[l] = $fma(x, $set(*k.as_ptr().add(i + l)), p[l]);
                            }
                        }
                        let dot = $add($add($add(p[0], p[4]), $add(p[2], p[6])), $add($add(p[1], p[5]), $add(p[3], p[7])));
                        let e = $mul($set(s.beta[t * s.heads + s.head]), $sub($load(v.as_ptr()), dot));
                        let mut p = [$zero(); LANES];
                        for i in (0..s.key_dim).step_by(LANES) {
                            for l in 0..LANES {
                                let cell = at.add((i + l) * COLUMNS);
                                // decayed a second time, which is less than to store it the first time
                                let x = $fma($set(*k.as_ptr().add(i + l)), e, $mul(decay, $load(cell)));
                                $store(cell, x);
                                p[l] = $fma(x, $set(*q.as_ptr().add(i + l)), p[l]);
                            }
                        }
                        let sum = $add($add($add(p[0], p[4]), $add(p[2], p[6])), $add($add(p[1], p[5]), $add(p[3], p[7])));
                        let mut o = [0.0f32; $n];
                        $store(o.as_mut_ptr(), sum);
                        o
                    };
                    if let Some(c) = &out {
                        c.write(t, first, &o);
                    }
                }
            }
        }
    };
}

scan!(
    scan_avx2,
    "avx2,fma",
    8,
    _mm256_setzero_ps,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_mul_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_fmadd_ps
);
scan!(
    scan_avx512,
    "avx512f",
    16,
    _mm512_setzero_ps,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_mul_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_fmadd_ps
);
