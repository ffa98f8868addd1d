//! What a block format has to say to the vector kernels: how to take a block apart with AVX2.

use std::arch::x86_64::*;
use strata_quant::BlockFormat;

/// Rows that are worked on together where a vector lane is a row.
pub(super) const ROWS: usize = 8;

/// A block format with a vector form. The integers are those of [`BlockFormat::integers`].
///
/// # Safety
/// Every function needs AVX2, FMA and F16C and whole blocks behind its pointers. They are `#[inline(always)]`, to be compiled
/// inside a function that enables the features.
pub(super) trait Unpack: BlockFormat {
    /// Codes come as magnitudes and signs.
    const SIGNED: bool = false;
    /// What is added to the codes of an unsigned format.
    const OFFSET: i8 = 0;
    /// A block is an f16 and 64 codes of two bits, four in a byte, the lowest first; it has two terms.
    const FOURS: bool = false;
    /// Where the f16 scale is, and what it is multiplied by (exactly).
    const D_AT: usize = 0;
    const D_UNIT: f32 = 1.0;
    /// The same of the minima's scale.
    const MIN_AT: usize = 2;
    const MIN_UNIT: f32 = 1.0;

    /// What all units of a block need, in memory.
    type Head: Copy;

    /// Writes what all units of a block need.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn head(_b: *const u8, _to: &mut Self::Head) {}

    /// The codes of values `32 J` to `32 J + 31` of a block, in order.
    ///
    /// Of an unsigned format ([`Unpack::SIGNED`] is false) the first holds code + [`Unpack::OFFSET`] and the second nothing. Of a
    /// signed one the first holds magnitudes and the second numbers of the codes' signs (of any sign where the magnitude is 0).
    ///
    /// # Safety
    /// As the trait says; the block has the unit.
    unsafe fn unit<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i);

    /// The sub-scales of a 256-wide block as 16-bit integers: sixteen, or eight in each half.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn subs(_b: *const u8) -> __m256i {
        unreachable!("a format without sub-scales")
    }

    /// The minima of a 256-wide block, one for every 16 values.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn mins(_b: *const u8) -> __m256i {
        unreachable!("a format without minima")
    }

    /// The scale of term `term` of a block of each of eight rows.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn d(b: Blocks, _term: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(b, Self::D_AT, Self::D_UNIT) }
    }

    /// The scale of the minima of a block of each of eight rows.
    ///
    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn dmin(b: Blocks) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(b, Self::MIN_AT, Self::MIN_UNIT) }
    }
}

/// A block of each of eight rows.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// That of the first row.
    pub first: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
}

impl Blocks {
    /// The block of row `k`.
    #[inline(always)]
    pub fn of(self, k: usize) -> *const u8 {
        self.first.wrapping_add(k * self.stride)
    }

    /// The blocks `bytes` further on.
    #[inline(always)]
    pub fn after(self, bytes: usize) -> Blocks {
        Blocks { first: self.first.wrapping_add(bytes), stride: self.stride }
    }
}

/// The f16 at byte `at` of eight blocks, times `unit`.
///
/// # Safety
/// F16C; the bytes exist.
#[inline(always)]
pub(super) unsafe fn halves(b: Blocks, at: usize, unit: f32) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let h = |k: usize| b.of(k).add(at).cast::<i16>().read_unaligned();
        let d = _mm256_cvtph_ps(_mm_setr_epi16(h(0), h(1), h(2), h(3), h(4), h(5), h(6), h(7)));
        if unit == 1.0 { d } else { _mm256_mul_ps(d, _mm256_set1_ps(unit)) }
    }
}

/// Does something for each of the first `$count` of eight constants.
macro_rules! each {
    ($j:ident < $count:expr => $body:block) => {
        each!(@ $j $count, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $j:ident $count:expr, $body:block, $($n:literal)*) => {$(
        if $n < $count {
            const $j: usize = $n;
            $body
        }
    )*};
}
pub(super) use each;

/// `x`, of which the compiler knows nothing afterwards but where it is: it would take what is written there apart into registers,
/// which is slower than the loads.
#[inline(always)]
pub(super) fn in_memory<T>(x: &mut T) {
    // SAFETY: an empty instruction that only seems to change `x`.
    unsafe { std::arch::asm!("/* {0} */", in(reg) std::ptr::from_mut(x), options(nostack, preserves_flags)) };
}

/// Shuffles for [`spread`], in memory: of constants the compiler would make two instructions each.
#[derive(Clone, Copy)]
pub(super) struct Spread([[u8; 32]; 8]);

impl Spread {
    /// The shuffles of a format.
    #[inline(always)]
    pub fn of<F: Unpack>() -> Spread {
        let mut all = Spread([[0; 32]; 8]);
        for (j, shuffle) in all.0.iter_mut().enumerate() {
            for (i, place) in shuffle.iter_mut().enumerate() {
                let sub = if F::SPAN == 16 { j % 4 * 2 + i / 16 } else { j };
                *place = (sub * 2 + i % 2) as u8;
            }
        }
        in_memory(&mut all);
        all
    }
}

/// 32 bytes.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub(super) unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// 16 bytes.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub(super) unsafe fn load16(at: *const u8) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_loadu_si128(at.cast()) }
}

/// 16 bytes, twice.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub(super) unsafe fn twice(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_broadcastsi128_si256(load16(at)) }
}

/// A number of 32 bits.
///
/// # Safety
/// The bytes exist.
#[inline(always)]
pub(super) unsafe fn word(at: *const u8) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u32>().read_unaligned() }
}

/// A number of 64 bits.
///
/// # Safety
/// The bytes exist.
#[inline(always)]
pub(super) unsafe fn long(at: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u64>().read_unaligned() }
}

/// The 32 nibbles of 16 bytes: low ones, then high ones.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub(super) unsafe fn nibbles(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
        _mm256_and_si256(_mm256_srlv_epi32(twice(at), shift), _mm256_set1_epi8(15))
    }
}

/// Magnitude and sign of nibbles that stand for the values of a table.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn looked_up(nibbles: __m256i, values: &[i8; 16]) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise; a table has 16 bytes.
    unsafe {
        let s = _mm256_shuffle_epi8(twice(values.as_ptr().cast()), nibbles);
        (_mm256_abs_epi8(s), s)
    }
}

/// 32 bits as bytes, 0xff for a set bit.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn mask(bits: u32) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let each = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), places);
        _mm256_cmpeq_epi8(_mm256_and_si256(bytes, each), each)
    }
}

/// Bytes -1 where a bit is set, 1 elsewhere.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn signs(bits: u32) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_or_si256(mask(bits), _mm256_set1_epi8(1)) }
}

/// Eight bytes as 16-bit integers, in both halves.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn eight_subs(bytes: u64) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(_mm_cvtsi64_si128(bytes as i64))) }
}

/// The nibbles of a number as bytes, lowest first.
#[inline(always)]
pub(super) fn spread_nibbles(x: u32) -> u64 {
    let x = u64::from(x);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f
}

/// The sub-scales of unit `j`, one for every 16-bit lane.
///
/// # Safety
/// AVX2; `subs` as [`Unpack::subs`] gives them.
#[inline(always)]
pub(super) unsafe fn spread<F: Unpack>(subs: __m256i, j: usize, how: &Spread) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let half = match (F::SPAN, j) {
            (16, 0..4) => _mm256_permute4x64_epi64(subs, 0x44),
            (16, _) => _mm256_permute4x64_epi64(subs, 0xee),
            _ => subs,
        };
        _mm256_shuffle_epi8(half, load(how.0[j].as_ptr()))
    }
}
