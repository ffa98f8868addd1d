//! Few activation rows: eight weight rows are read as they lie in the file, each block once, its codes only ever in
//! registers. The integer sums of the eight rows become one vector, a lane a row, and go into the chains together.

use super::super::Matrix;
use super::super::kernel::Tile;
use super::unpack::{Blocks, ROWS, Spread, Unpack, each, in_memory, load, spread, twice};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use strata_ops::matmul::{CHAINS_NARROW, CHAINS_WIDE, SUM_SPAN, segment};

/// Activation rows that share the codes of a block at most.
pub(super) const SHARE: usize = 4;

/// # Safety
/// AVX2, FMA, F16C (and AVX-512 VL with VNNI for `VNNI`); otherwise as a [`super::super::kernel::Kernel`].
#[inline(always)]
pub(super) unsafe fn run<F: Unpack, const VNNI: bool>(w: &Matrix, tile: &Tile<'_>) {
    // a matrix of fewer rows has each of them eight times
    let (step, stride) = if w.rows < ROWS { (1, 0) } else { (ROWS, w.row_bytes) };
    for r in tile.rows.clone().step_by(step) {
        // the last eight rows overlap those before, which is harmless
        let first = if w.rows < ROWS { r } else { r.min(w.rows - ROWS) };
        let rows = Blocks { first: w.row(first).as_ptr(), stride };
        let panel = Panel { rows, next: ROWS * w.row_bytes, blocks: w.cols / F::LEN, first, step, tile };
        let mut i = tile.items.start;
        while i < tile.items.end {
            let left = tile.items.end - i;
            let share = left.div_ceil(left.div_ceil(SHARE));
            // SAFETY: the caller's promise.
            unsafe {
                match share {
                    1 => panel.multiply::<F, 1, VNNI>(i),
                    2 => panel.multiply::<F, 2, VNNI>(i),
                    3 => panel.multiply::<F, 3, VNNI>(i),
                    _ => panel.multiply::<F, 4, VNNI>(i),
                }
            }
            i += share;
        }
    }
}

/// Eight rows.
struct Panel<'a> {
    rows: Blocks,
    /// Bytes from a row to the one that takes its place next.
    next: usize,
    blocks: usize,
    /// The first row.
    first: usize,
    /// Rows that are different.
    step: usize,
    tile: &'a Tile<'a>,
}

impl Panel<'_> {
    /// The outputs of items `i..i + T`.
    ///
    /// # Safety
    /// As [`run`]; the tile has these items.
    #[inline(always)]
    unsafe fn multiply<F: Unpack, const T: usize, const VNNI: bool>(&self, i: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let total = if F::LEN == 256 {
                self.wide::<F, T, VNNI>(i)
            } else if F::FOURS {
                self.fours::<F, T>(i)
            } else {
                self.narrow::<F, T, VNNI>(i)
            };
            for (t, total) in total.into_iter().enumerate() {
                let mut y = [0.0; ROWS];
                _mm256_storeu_ps(y.as_mut_ptr(), total);
                self.tile.store(i + t, self.first, &y[..self.step]);
            }
        }
    }

    /// Sends for the block that takes the place of `b` next.
    ///
    /// # Safety
    /// None: a prefetch may name any address.
    #[inline(always)]
    unsafe fn send_for<F: Unpack>(&self, b: *const u8) {
        let ahead = b.wrapping_add(self.next);
        // SAFETY: as above.
        unsafe {
            _mm_prefetch(ahead.cast(), _MM_HINT_T0);
            if size_of::<F::Bytes>() > 64 {
                _mm_prefetch(ahead.wrapping_add(64).cast(), _MM_HINT_T0);
            }
            if size_of::<F::Bytes>() > 128 {
                _mm_prefetch(ahead.wrapping_add(128).cast(), _MM_HINT_T0);
            }
            if size_of::<F::Bytes>() > 192 {
                _mm_prefetch(ahead.wrapping_add(192).cast(), _MM_HINT_T0);
            }
        }
    }

    /// Sends for a part of the next eight rows, which lie one after another, while block `s` of these is worked on.
    ///
    /// # Safety
    /// None: a prefetch may name any address.
    #[inline(always)]
    unsafe fn send_for_all<F: Unpack>(&self, s: usize) {
        let ahead = self.rows.first.wrapping_add(self.next + s * ROWS * size_of::<F::Bytes>());
        for line in 0..(ROWS * size_of::<F::Bytes>()).div_ceil(64) {
            // SAFETY: as above.
            unsafe { _mm_prefetch(ahead.wrapping_add(64 * line).cast(), _MM_HINT_T0) };
        }
    }

    /// # Safety
    /// As [`Panel::multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items and units count through several arrays")]
    unsafe fn wide<F: Unpack, const T: usize, const VNNI: bool>(&self, i: usize) -> [__m256; T] {
        let acts = self.tile.acts;
        let items: [usize; T] = std::array::from_fn(|t| self.tile.act_rows.get(i + t));
        let codes = items.map(|t| acts.codes256(t).as_ptr().cast::<u8>());
        let sums = items.map(|t| acts.sums256(t).as_ptr());
        let scales = items.map(|t| acts.scales256(t).as_ptr());
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let mut chains = Chains::<T, CHAINS_WIDE>::new(self.blocks);
            let (mut isums, mut msums) = (MaybeUninit::<[[__m256i; ROWS]; T]>::uninit(), MaybeUninit::<[[__m256i; ROWS]; T]>::uninit());
            let how = Spread::of::<F>();
            let mut heads = MaybeUninit::<[F::Head; ROWS]>::uninit();
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                // those of all rows first: what is written is read some time later, and nobody waits for it
                for k in 0..ROWS {
                    F::head(blocks.of(k), &mut (*heads.as_mut_ptr())[k]);
                }
                in_memory(&mut heads);
                for k in 0..ROWS {
                    let b = blocks.of(k);
                    self.send_for::<F>(b);
                    let head = &(*heads.as_ptr())[k];
                    let subs = F::subs(b);
                    let mut isum = [_mm256_setzero_si256(); T];
                    each!(J < 8 => {
                        let (u, signs) = F::unit::<J>(b, head);
                        let scale = spread::<F>(subs, J, &how);
                        for t in 0..T {
                            let mut a = load(codes[t].add(s * 256 + J * 32));
                            if F::SIGNED {
                                a = _mm256_sign_epi8(a, signs);
                            }
                            // a pair is at most 2 * 128 * 127
                            isum[t] = add_products::<VNNI>(isum[t], _mm256_maddubs_epi16(u, a), scale);
                        }
                    });
                    if F::OFFSET != 0 {
                        // the codes are too large by the offset; 32 * 128 fits 16 bits
                        let each = if F::SPAN == 16 { subs } else { widen(subs) };
                        let factors = _mm256_mullo_epi16(each, _mm256_set1_epi16(-i16::from(F::OFFSET)));
                        for t in 0..T {
                            isum[t] = add_products::<VNNI>(isum[t], factors, load(sums[t].add(s * 256 / SUM_SPAN).cast()));
                        }
                    }
                    if F::MAX_MIN > 0 {
                        let mins = F::mins(b);
                        for t in 0..T {
                            let m = _mm256_madd_epi16(mins, load(sums[t].add(s * 256 / SUM_SPAN).cast()));
                            (&raw mut (*msums.as_mut_ptr())[t][k]).write(m);
                        }
                    }
                    for t in 0..T {
                        (&raw mut (*isums.as_mut_ptr())[t][k]).write(isum[t]);
                    }
                }
                let d = F::d(blocks, 0);
                let dmin = if F::MAX_MIN > 0 { F::dmin(blocks) } else { d };
                for t in 0..T {
                    let scale = _mm256_set1_ps(*scales[t].add(s));
                    let isum = _mm256_cvtepi32_ps(lane_sums(&(&raw const (*isums.as_ptr())[t]).read()));
                    let chain = &mut chains.chain[t];
                    *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), isum, *chain);
                    if F::MAX_MIN > 0 {
                        // fnmadd is fma(-dmin, ..)
                        let msum = _mm256_cvtepi32_ps(lane_sums(&(&raw const (*msums.as_ptr())[t]).read()));
                        *chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), msum, *chain);
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }

    /// # Safety
    /// As [`Panel::multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "items and units count through several arrays")]
    unsafe fn narrow<F: Unpack, const T: usize, const VNNI: bool>(&self, i: usize) -> [__m256; T] {
        let acts = self.tile.acts;
        let items: [usize; T] = std::array::from_fn(|t| self.tile.act_rows.get(i + t));
        let codes = items.map(|t| acts.codes32(t).as_ptr().cast::<u8>());
        let sums = items.map(|t| acts.sums32(t).as_ptr());
        let scales = items.map(|t| acts.scales32(t).as_ptr());
        let units = F::LEN / 32;
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let zero = _mm256_setzero_si256();
            let mut head = MaybeUninit::<F::Head>::uninit();
            let head = &mut *head.as_mut_ptr();
            let mut chains = Chains::<T, CHAINS_NARROW>::new(self.blocks);
            // sums of four pairs of products fit 16 bits; an offset is for a negative code, which the largest is below
            let small = !VNNI && F::MAX_CODE + i32::from(F::OFFSET) - i32::from(F::OFFSET > 0) <= 31;
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                let mut isums = [[[zero; ROWS]; 2]; T];
                self.send_for_all::<F>(s);
                each!(K < 8 => {
                    let b = blocks.of(K);
                    F::head(b, head);
                    each!(U < units => {
                        let (u, signs) = F::unit::<U>(b, head);
                        for t in 0..T {
                            let mut a = load(codes[t].add((s * units + U) * 32));
                            if F::SIGNED {
                                a = _mm256_sign_epi8(a, signs);
                            }
                            isums[t][U % 2][K] = if VNNI {
                                _mm256_dpbusd_epi32(zero, u, a)
                            } else if small {
                                _mm256_maddubs_epi16(u, a)
                            } else {
                                _mm256_madd_epi16(_mm256_maddubs_epi16(u, a), _mm256_set1_epi16(1))
                            };
                        }
                    });
                });
                let d = F::d(blocks, 0);
                let dmin = if F::MAX_MIN > 0 { F::dmin(blocks) } else { d };
                for u in 0..units {
                    for t in 0..T {
                        let scale = _mm256_set1_ps(*scales[t].add(s * units + u));
                        let chain = &mut chains.chain[t];
                        let (first, second) = if small { half_sums16(&isums[t][u]) } else { half_sums(&isums[t][u]) };
                        if F::SPAN == 16 {
                            for (term, isum) in [first, second].into_iter().enumerate() {
                                let d = F::d(blocks, 2 * u + term);
                                *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                            }
                            continue;
                        }
                        let mut isum = _mm256_add_epi32(first, second);
                        let sum = *sums[t].add(s * units + u);
                        if F::OFFSET != 0 {
                            isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(i32::from(F::OFFSET) * sum));
                        }
                        *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                        if F::MAX_MIN > 0 {
                            *chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), _mm256_set1_ps(sum as f32), *chain);
                        }
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }
}

impl Panel<'_> {
    /// Of formats with [`Unpack::FOURS`]: the activations are brought into the order of the codes' places in their bytes, once for
    /// eight rows, which is easier than the reverse.
    ///
    /// # Safety
    /// As [`Panel::multiply`].
    #[inline(always)]
    unsafe fn fours<F: Unpack, const T: usize>(&self, i: usize) -> [__m256; T] {
        let acts = self.tile.acts;
        let items: [usize; T] = std::array::from_fn(|t| self.tile.act_rows.get(i + t));
        let codes = items.map(|t| acts.codes32(t).as_ptr().cast::<u8>());
        let sums = items.map(|t| acts.sums32(t).as_ptr());
        let scales = items.map(|t| acts.scales32(t).as_ptr());
        // SAFETY: the caller's promise: rows and activations have the blocks that are counted.
        unsafe {
            let zero = _mm256_setzero_si256();
            let three = _mm256_set1_epi8(3);
            let shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
            let mut chains = Chains::<T, CHAINS_NARROW>::new(self.blocks);
            for s in 0..self.blocks {
                let blocks = self.rows.after(s * size_of::<F::Bytes>());
                self.send_for_all::<F>(s);
                let mut a = [(zero, zero); T];
                for t in 0..T {
                    a[t] = by_places(codes[t].add(64 * s));
                }
                // pairs of products are at most 2 * 3 * 127: sixteen of them fit 16 bits
                let mut pairs = [[zero; ROWS]; T];
                each!(K < 8 => {
                    // first half of the vector: places 0 of the sixteen bytes, second half: places 2; then 1 and 3
                    let q = _mm256_srlv_epi32(twice(blocks.of(K).add(2)), shift);
                    let (even, odd) = (_mm256_and_si256(q, three), _mm256_and_si256(_mm256_srli_epi16(q, 2), three));
                    for t in 0..T {
                        pairs[t][K] = _mm256_add_epi16(_mm256_maddubs_epi16(even, a[t].0), _mm256_maddubs_epi16(odd, a[t].1));
                    }
                });
                let d = F::d(blocks, 0);
                for t in 0..T {
                    let v = &pairs[t];
                    let low = _mm256_hadd_epi16(_mm256_hadd_epi16(v[0], v[1]), _mm256_hadd_epi16(v[2], v[3]));
                    let high = _mm256_hadd_epi16(_mm256_hadd_epi16(v[4], v[5]), _mm256_hadd_epi16(v[6], v[7]));
                    // a lane is a row: its first term in the lower half, its second in the upper
                    let both = _mm256_add_epi16(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
                    let terms = [_mm256_srai_epi32(_mm256_slli_epi32(both, 16), 16), _mm256_srai_epi32(both, 16)];
                    for (u, isum) in terms.into_iter().enumerate() {
                        let scale = _mm256_set1_ps(*scales[t].add(2 * s + u));
                        let isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(i32::from(F::OFFSET) * *sums[t].add(2 * s + u)));
                        let chain = &mut chains.chain[t];
                        *chain = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(isum), *chain);
                    }
                }
                chains.after(s);
            }
            chains.total
        }
    }
}

/// 64 activation codes by their number modulo four: 0 and 2 in the halves of the first vector, 1 and 3 in the second.
///
/// # Safety
/// AVX2; the codes exist.
#[inline(always)]
unsafe fn by_places(at: *const u8) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let (x, y) = (_mm256_shuffle_epi8(load(at), four), _mm256_shuffle_epi8(load(at.add(32)), four));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let low = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi32(x, y), order);
        let high = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi32(x, y), order);
        (_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}

/// The chains of a row's segments, of which there are `C`, for `T` items.
struct Chains<const T: usize, const C: usize> {
    chain: [__m256; T],
    total: [__m256; T],
    blocks: usize,
    /// The segment and the block behind it.
    c: usize,
    end: usize,
}

impl<const T: usize, const C: usize> Chains<T, C> {
    /// # Safety
    /// AVX.
    #[inline(always)]
    unsafe fn new(blocks: usize) -> Self {
        // SAFETY: the caller's promise.
        let zero = unsafe { [_mm256_setzero_ps(); T] };
        let mut chains = Chains { chain: zero, total: zero, blocks, c: 0, end: 0 };
        chains.skip(0);
        chains
    }

    /// Goes to the segment that ends behind block `s`.
    #[inline(always)]
    fn skip(&mut self, s: usize) {
        while self.c < C {
            self.end = segment(self.c, self.blocks, C).end;
            if self.end > s {
                return;
            }
            self.c += 1;
        }
    }

    /// Ends the segment if block `s` is its last. An empty segment would add +0.
    ///
    /// The total starts at +0, and a chain is never -0 (it starts at +0, and a rounded product times an integer does not
    /// underflow): +0 plus the first chain is the first chain.
    ///
    /// # Safety
    /// AVX.
    #[inline(always)]
    unsafe fn after(&mut self, s: usize) {
        if s + 1 == self.end {
            self.skip(s + 1);
            for t in 0..T {
                // SAFETY: the caller's promise.
                unsafe {
                    self.total[t] = _mm256_add_ps(self.total[t], self.chain[t]);
                    self.chain[t] = _mm256_setzero_ps();
                }
            }
        }
    }
}

/// `sum` plus the sums of pairs of products of 16-bit integers.
///
/// # Safety
/// AVX2, and AVX-512 VL with VNNI for `VNNI`.
#[inline(always)]
unsafe fn add_products<const VNNI: bool>(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { if VNNI { _mm256_dpwssd_epi32(sum, a, b) } else { _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)) } }
}

/// Eight 16-bit integers, each twice.
///
/// # Safety
/// AVX2; `x` has them in both halves.
#[inline(always)]
unsafe fn widen(x: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let twice =
            _mm256_setr_epi8(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9, 8, 9, 10, 11, 10, 11, 12, 13, 12, 13, 14, 15, 14, 15);
        _mm256_shuffle_epi8(x, twice)
    }
}

/// The sums of the lanes of each half of eight vectors: all first halves, all second halves.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn half_sums(v: &[__m256i; ROWS]) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] =
            [_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]), _mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7])];
        let (low, high) = (_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        (_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}

/// [`half_sums`] of 16-bit lanes, of which four fit 16 bits.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn half_sums16(v: &[__m256i; ROWS]) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] =
            [_mm256_hadd_epi16(v[0], v[1]), _mm256_hadd_epi16(v[2], v[3]), _mm256_hadd_epi16(v[4], v[5]), _mm256_hadd_epi16(v[6], v[7])];
        let ones = _mm256_set1_epi16(1);
        let (low, high) = (_mm256_madd_epi16(_mm256_hadd_epi16(a, b), ones), _mm256_madd_epi16(_mm256_hadd_epi16(c, d), ones));
        (_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}

/// The sums of the lanes of each of eight vectors.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn lane_sums(v: &[__m256i; ROWS]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let (first, second) = half_sums(v);
        _mm256_add_epi32(first, second)
    }
}
