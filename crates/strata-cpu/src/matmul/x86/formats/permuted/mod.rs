//! Codebook formats for the kernel that looks entries up 64 at a time, a file a family.

mod bits;
mod iq1;
mod iq2;
mod iq3;
mod look_up;
mod planes;
#[cfg(test)]
mod tests;

use super::super::unpack::Unpack;
pub(in super::super) use planes::UP;
use planes::Values;
use std::arch::x86_64::*;

/// A codebook format whose entries are looked up 64 at a time.
///
/// # Safety
/// Every function needs AVX-512 F, BW, DQ, VL, VBMI, BITALG and GFNI and whole blocks behind its pointers. They are `#[inline(always)]`, to
/// be compiled inside a function that enables the features.
pub(in super::super) trait Permuted: Unpack {
    /// Codes of an entry: of eight, 64 entries are a block of each of two rows; of four, a block.
    const EACH: usize;
    /// For every two codes of an entry the bit matrix that takes their signs from the byte of signs to where they belong in an index.
    const SIGNS: &'static [i64];

    /// What the codes of an index are.
    const VALUES: [&'static Values; 2];

    /// Ranks of the first and of the second half of the codes of 64 entries, and a byte of signs for each. Block `b` follows `a`.
    /// `TWO` is for CPUs on which [two registers](crate::simd::permutes_two) are permuted as quickly as one.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn entries<const TWO: bool>(a: *const u8, b: *const u8) -> [__m512i; 3];

    /// The sub-scales: of 32 values one for each 32-bit lane, which belongs to four entries; of 16 one for each 16-bit lane.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i;
}
