//! A panel: some blocks of sixteen weight rows, taken apart and interleaved, so that a vector lane is a row.

use super::unpack::{Blocks, ROWS, Unpack, each, in_memory, transposed};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Rows of a panel.
pub(super) const LANES: usize = 16;
/// Columns of a panel.
pub(super) const RUN: usize = 512;

/// One 32-bit number for every row.
pub(super) type Line<T> = [T; LANES];

/// Codes are in steps of four columns, which is what the integer dot instructions take: `[32 columns][step][row][4]`.
///
/// Products are of unsigned bytes with signed ones. Where the codes fit (see [`split`]), the activations are the unsigned ones,
/// raised by 128, and integer sums start at what that adds, taken away, which does not depend on the activations. Else the
/// codes' magnitudes are the unsigned ones, and w a = |w| (!a) + |w| for negative w: an exclusive or with the row's signs, and sums
/// that start at the magnitudes of the negative codes.
#[repr(C, align(64))]
pub(super) struct Panel {
    pub codes: [[Line<[u8; 4]>; 8]; RUN / 32],
    /// Bytes 0xff where a code is negative, for split codes.
    pub negative: [[Line<[u8; 4]>; 8]; RUN / 32],
    /// Of 256-wide blocks: sub-scales, as pairs of equal 16-bit integers (32-bit integers for VNNI).
    pub subs: [Line<u32>; RUN / 16],
    /// Of 256-wide blocks: minima of two sub-blocks, as pairs of 16-bit integers.
    pub mins: [Line<u32>; RUN / 32],
    /// What the integer sum of a term starts at.
    pub start: [Line<i32>; RUN / 16],
    /// Scale of a term.
    pub d: [Line<f32>; RUN / 16],
    /// Scale of a term's minima.
    pub dmin: [Line<f32>; RUN / 16],
}

/// Whether codes are kept as magnitudes and signs: twice 255 times a code does not fit 16 bits, which VNNI does not mind.
pub(super) const fn split<F: Unpack>(vnni: bool) -> bool {
    !vnni && F::MAX_CODE > 64
}

/// Columns that one float term covers.
pub(super) const fn term<F: Unpack>() -> usize {
    if F::LEN == 256 {
        256
    } else if F::SPAN == 16 {
        16
    } else {
        32
    }
}

/// Steps whose pairs of products sum in 16 bits.
pub(super) const fn group<F: Unpack>() -> usize {
    let signed = F::MAX_MIN == 0;
    let fit = 32_640 / (if signed { 510 } else { 254 } * F::MAX_CODE as usize);
    // eight steps of 16 bits are little better than twice four, and a form more
    if fit >= 8 && signed && F::SPAN != 16 {
        8
    } else if fit >= 4 {
        4
    } else if fit >= 2 {
        2
    } else {
        1
    }
}

/// Takes `count` blocks of half of the rows apart, from `first` on.
///
/// # Safety
/// AVX2, FMA and F16C (and AVX-512 VL for some); the rows have the blocks, which are [`RUN`] columns at most.
pub(super) type Fill = unsafe fn(&mut Panel, first: Blocks, half: usize, count: usize);

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn fill_avx2<F: Unpack>(panel: &mut Panel, first: Blocks, half: usize, count: usize) {
    // SAFETY: the features are enabled here; the rest is the caller's promise.
    unsafe { panel.fill::<F, false>(first, half, count) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn fill_vnni<F: Unpack>(panel: &mut Panel, first: Blocks, half: usize, count: usize) {
    // SAFETY: as above.
    unsafe { panel.fill::<F, true>(first, half, count) }
}

impl Panel {
    /// # Safety
    /// As [`Fill`].
    #[inline(always)]
    unsafe fn fill<F: Unpack, const VNNI: bool>(&mut self, first: Blocks, half: usize, count: usize) {
        assert!(count * F::LEN <= RUN);
        for s in 0..count {
            // SAFETY: the caller's promise.
            unsafe { self.block::<F, VNNI>(first.after(s * size_of::<F::Bytes>()), half, s) };
        }
    }

    /// Block `s` of half of the rows.
    ///
    /// # Safety
    /// As [`Fill`].
    #[inline(always)]
    unsafe fn block<F: Unpack, const VNNI: bool>(&mut self, blocks: Blocks, half: usize, s: usize) {
        let units = F::LEN / 32;
        // SAFETY: the caller's promise; what is read of the arrays without values was written before.
        unsafe {
            let zero = _mm256_setzero_si256();
            let mut w = MaybeUninit::<[[__m256i; ROWS]; 8]>::uninit();
            let mut subs = MaybeUninit::<[[__m256i; ROWS]; 2]>::uninit();
            let mut mins = MaybeUninit::<[__m256i; ROWS]>::uninit();
            let mut head = MaybeUninit::<F::Head>::uninit();
            for k in 0..ROWS {
                let b = blocks.of(k);
                F::head(b, &mut *head.as_mut_ptr());
                in_memory(&mut head);
                let head = &*head.as_ptr();
                each!(J < units => {
                    let (u, signs) = F::unit::<J>(b, head);
                    let code = if F::SIGNED {
                        _mm256_sign_epi8(u, signs)
                    } else if F::OFFSET != 0 {
                        _mm256_sub_epi8(u, _mm256_set1_epi8(F::OFFSET))
                    } else {
                        u
                    };
                    (&raw mut (*w.as_mut_ptr())[J][k]).write(code);
                });
                if F::LEN == 256 {
                    let x = F::subs(b);
                    let low = _mm256_permute4x64_epi64(x, 0x50);
                    (&raw mut (*subs.as_mut_ptr())[0][k]).write(_mm256_unpacklo_epi16(low, low));
                    if F::SPAN == 16 {
                        let high = _mm256_permute4x64_epi64(x, 0xfa);
                        (&raw mut (*subs.as_mut_ptr())[1][k]).write(_mm256_unpacklo_epi16(high, high));
                    }
                    if F::MAX_MIN > 0 {
                        (&raw mut (*mins.as_mut_ptr())[k]).write(F::mins(b));
                    }
                }
            }
            let per_unit = if F::SPAN == 16 { 2 } else { 1 };
            if F::LEN == 256 {
                for x in 0..per_unit {
                    let all = transposed(&(*subs.as_ptr())[x]);
                    for (j, pair) in all.into_iter().enumerate() {
                        put(&mut self.subs[s * 8 * per_unit + x * 8 + j], half, pair);
                    }
                }
                if F::MAX_MIN > 0 {
                    let pairs = transposed(&*mins.as_ptr());
                    for j in 0..4 * per_unit {
                        // minima for 32 values come twice: two pairs are one of those of the sums of 32
                        let m = if F::SPAN == 16 { pairs[j] } else { _mm256_blend_epi16(pairs[2 * j], pairs[2 * j + 1], 0xaa) };
                        put(&mut self.mins[s * 4 * per_unit + j], half, m);
                    }
                    put(&mut self.dmin[s], half, _mm256_castps_si256(F::dmin(blocks)));
                }
                put(&mut self.d[s], half, _mm256_castps_si256(F::d(blocks, 0)));
            }
            let ones = _mm256_set1_epi8(1);
            let mut start = zero;
            for j in 0..units {
                let unit = s * units + j;
                let steps = transposed(&(*w.as_ptr())[j]);
                let mut sums = [zero; 2];
                for (step, w) in steps.into_iter().enumerate() {
                    let sum = &mut sums[if F::SPAN == 16 { step / 4 } else { 0 }];
                    if split::<F>(VNNI) {
                        let (u, n) = (_mm256_abs_epi8(w), _mm256_cmpgt_epi8(zero, w));
                        put(&mut self.codes[unit][step], half, u);
                        put(&mut self.negative[unit][step], half, n);
                        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(_mm256_and_si256(u, n), ones));
                    } else {
                        put(&mut self.codes[unit][step], half, w);
                        // where the activations are as they are, sums start at nothing
                        if F::MAX_MIN == 0 {
                            *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(ones, w));
                        }
                    }
                }
                for (g, sum) in sums.into_iter().take(per_unit).enumerate() {
                    let sub = &mut self.subs[if F::LEN == 256 { unit * per_unit + g } else { 0 }];
                    let pair = if F::LEN == 256 { get(sub, half) } else { _mm256_set1_epi16(1) };
                    if F::LEN == 256 && VNNI {
                        put(sub, half, _mm256_srai_epi32(pair, 16));
                    }
                    start = _mm256_add_epi32(start, _mm256_madd_epi16(sum, pair));
                    if F::LEN < 256 {
                        let term = unit * per_unit + g;
                        put(&mut self.start[term], half, begin::<F, VNNI>(start));
                        put(&mut self.d[term], half, _mm256_castps_si256(F::d(blocks, j * per_unit + g)));
                        if F::MAX_MIN > 0 {
                            put(&mut self.dmin[term], half, _mm256_castps_si256(F::dmin(blocks)));
                        }
                        start = zero;
                    }
                }
            }
            if F::LEN == 256 {
                put(&mut self.start[s], half, begin::<F, VNNI>(start));
            }
        }
    }
}

/// What a sum starts at, from the sum of its codes (of the magnitudes of the negative ones if they are split).
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn begin<F: Unpack, const VNNI: bool>(sum: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { if split::<F>(VNNI) { sum } else { _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, 7)) } }
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn put<T>(line: &mut Line<T>, half: usize, v: __m256i) {
    const { assert!(size_of::<T>() == 4) };
    let line = &mut line[half * ROWS..(half + 1) * ROWS];
    // SAFETY: 32 bytes by the slice.
    unsafe { _mm256_storeu_si256(line.as_mut_ptr().cast(), v) }
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn get<T>(line: &Line<T>, half: usize) -> __m256i {
    const { assert!(size_of::<T>() == 4) };
    let line = &line[half * ROWS..(half + 1) * ROWS];
    // SAFETY: 32 bytes by the slice.
    unsafe { _mm256_loadu_si256(line.as_ptr().cast()) }
}
