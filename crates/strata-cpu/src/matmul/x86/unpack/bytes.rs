//! Bytes, bits and small numbers to vectors.

use std::arch::x86_64::*;

/// `x`, of which the compiler knows nothing afterwards but where it is: it would take what is written there apart into registers,
/// which is slower than the loads.
#[inline(always)]
pub fn in_memory<T>(x: &mut T) {
    // SAFETY: an empty instruction that only seems to change `x`.
    unsafe { std::arch::asm!("/* {0} */", in(reg) std::ptr::from_mut(x), options(nostack, preserves_flags)) };
}

/// `x`, of which the compiler forgets what it was made of: it would make shuffles of other instructions, which are not as fast.
///
/// # Safety
/// AVX.
#[inline]
#[target_feature(enable = "avx")]
pub unsafe fn kept(mut x: __m256i) -> __m256i {
    // SAFETY: an empty instruction that only seems to change `x`.
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}

/// Where `x` is, of which the compiler knows no more: of constants it would make two instructions where one can read them from memory.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "it does not look at what is there")]
pub fn hidden<T>(x: &'static T) -> &'static T {
    let mut at = std::ptr::from_ref(x);
    // SAFETY: an empty instruction that only seems to change the address.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags));
        &*at
    }
}

/// A shuffle within 16 bytes for each of some units; those of two units are one for 64 bytes.
#[repr(C, align(64))]
pub struct Places<const N: usize>(pub [[u8; 32]; N]);

impl<const N: usize> Places<N> {
    /// That of unit `j`.
    #[inline(always)]
    pub fn of(&'static self, j: usize) -> *const u8 {
        hidden(self).0[j].as_ptr()
    }
}

/// Byte 4 j + i, eight times, for each of the four groups i of unit j.
pub static GROUPS: Places<4> = {
    let mut all = [[0; 32]; 4];
    let mut i = 0;
    while i < 128 {
        all[i / 32][i % 32] = (i / 8) as u8;
        i += 1;
    }
    Places(all)
};

/// 32 bytes.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// 16 bytes.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub unsafe fn load16(at: *const u8) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_loadu_si128(at.cast()) }
}

/// 16 bytes, twice.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub unsafe fn twice(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_broadcastsi128_si256(load16(at)) }
}

/// 16 bytes from one place, then 16 from another.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub unsafe fn joined16(a: *const u8, b: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_inserti128_si256(_mm256_castsi128_si256(load16(a)), load16(b), 1) }
}

/// 32 bytes from one place, then 32 from another.
///
/// # Safety
/// AVX-512 F; the bytes exist.
#[inline(always)]
pub unsafe fn joined32(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_inserti64x4(_mm512_castsi256_si512(load(a)), load(b), 1) }
}

/// A number of 32 bits.
///
/// # Safety
/// The bytes exist.
#[inline(always)]
pub unsafe fn word(at: *const u8) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u32>().read_unaligned() }
}

/// A number of 64 bits.
///
/// # Safety
/// The bytes exist.
#[inline(always)]
pub unsafe fn long(at: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u64>().read_unaligned() }
}

/// The 32 nibbles of 16 bytes: low ones, then high ones.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub unsafe fn nibbles(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
        _mm256_and_si256(_mm256_srlv_epi32(twice(at), shift), _mm256_set1_epi8(15))
    }
}

/// The [`nibbles`] of two places.
///
/// # Safety
/// AVX-512 F and DQ; the bytes exist.
#[inline(always)]
pub unsafe fn two_nibbles(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
        let both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load16(a)), 0xff00, load16(b));
        _mm512_and_si512(_mm512_srlv_epi32(both, shift), _mm512_set1_epi8(15))
    }
}

/// The bytes of a table of sixteen for nibbles.
///
/// # Safety
/// AVX-512 BW; the table has 16 bytes.
#[inline(always)]
pub unsafe fn of_table(nibbles: __m512i, table: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load16(table)), nibbles) }
}

/// A table of values, each raised by 128.
pub const fn up_128(values: &[i8; 16]) -> [u8; 16] {
    let mut up = [0; 16];
    let mut i = 0;
    while i < 16 {
        up[i] = values[i] as u8 ^ 128;
        i += 1;
    }
    up
}

/// Magnitude and sign of nibbles that stand for the values of a table.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub unsafe fn looked_up(nibbles: __m256i, values: &[i8; 16]) -> (__m256i, __m256i) {
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
pub unsafe fn mask(bits: u32) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let each = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), places);
        _mm256_cmpeq_epi8(_mm256_and_si256(bytes, each), each)
    }
}

/// 64 bytes.
///
/// # Safety
/// AVX-512 F; the bytes exist.
#[inline(always)]
pub unsafe fn load512(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Bytes below 0 where a bit of unit `J` is set, above elsewhere. A block has 32 bytes of them.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
pub unsafe fn signs<const J: usize>(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm256_set1_epi32(word(at.add(4 * J)) as i32);
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let bytes = _mm256_shuffle_epi8(four, places);
        // plus 127, a set bit of any place is 128 to 255
        let bit = _mm256_and_si256(bytes, _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64));
        _mm256_add_epi8(bit, _mm256_set1_epi8(127))
    }
}

/// Eight bytes as 16-bit integers, in both halves.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub unsafe fn eight_subs(bytes: u64) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(_mm_cvtsi64_si128(bytes as i64))) }
}

/// The nibbles of a number as bytes, lowest first.
#[inline(always)]
pub fn spread_nibbles(x: u32) -> u64 {
    let x = u64::from(x);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f
}

/// Eight 16-bit integers, each twice.
///
/// # Safety
/// AVX2; `x` has them in both halves.
#[inline(always)]
pub unsafe fn widen(x: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let twice =
            _mm256_setr_epi8(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9, 8, 9, 10, 11, 10, 11, 12, 13, 12, 13, 14, 15, 14, 15);
        _mm256_shuffle_epi8(x, twice)
    }
}

/// The transpose of 8 x 8 32-bit numbers.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub unsafe fn transposed(v: &[__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let ([a, b, c, d], [e, f, g, h]) = (four_columns(v, 0), four_columns(v, 1));
        [a, b, c, d, e, f, g, h]
    }
}

/// Four columns: those of the lower halves of `v`, or of the upper ones.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn four_columns(v: &[__m256i; 8], half: usize) -> [__m256i; 4] {
    let at = v.as_ptr().cast::<__m128i>();
    // SAFETY: the caller's promise; eight vectors are sixteen halves.
    unsafe {
        let mut r = [_mm256_setzero_si256(); 4];
        for (k, r) in r.iter_mut().enumerate() {
            // loads join rows k and k + 4, which shuffles would have to bring together at the end
            let (low, high) = (at.add(2 * k + half).read(), at.add(2 * (k + 4) + half).read());
            *r = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        }
        let [a, b, c, d] = r;
        let (e0, e1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (f0, f1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [_mm256_unpacklo_epi64(e0, f0), _mm256_unpackhi_epi64(e0, f0), _mm256_unpacklo_epi64(e1, f1), _mm256_unpackhi_epi64(e1, f1)]
    }
}
