//! The formats, one file a family. Each is a type without values that implements [`crate::BlockFormat`] or
//! [`crate::FloatFormat`].

mod codebooks;
mod float;
mod fp4;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4;
mod q4_k;
mod q5;
mod q6_k;
mod q8_0;

pub use codebooks::{EVEN_SIGNS, IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};
pub use float::{BF16, F16, F32};
pub use fp4::{FP4_VALUES, MXFP4, NVFP4};
pub use iq1::{IQ1_M, IQ1_S};
pub use iq2::{IQ2_S, IQ2_XS, IQ2_XXS};
pub use iq3::{IQ3_S, IQ3_XXS};
pub use iq4::{IQ4_NL, IQ4_VALUES, IQ4_XS};
pub use q2_0::Q2_0;
pub use q2_k::Q2_K;
pub use q3_k::Q3_K;
pub use q4::{Q4_0, Q4_1};
pub use q4_k::{Q4_K, Q5_K};
pub use q5::{Q5_0, Q5_1};
pub use q6_k::Q6_K;
pub use q8_0::Q8_0;

/// 32 codes of 4 bits from 16 bytes: low halves are values 0..16, high halves 16..32.
#[inline(always)]
fn nibbles32(bytes: &[u8], value: impl Fn(u8) -> i8) -> [i8; 32] {
    std::array::from_fn(|i| value(if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }))
}

/// The 4-bit number `i` of bytes, low halves first.
#[inline(always)]
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (4 * (i % 2)) & 15
}

/// `codes`, negative where `signs` has a bit set.
#[inline(always)]
fn signed<const N: usize>(codes: [i8; N], signs: u8) -> [i8; N] {
    std::array::from_fn(|i| if signs >> i & 1 == 1 { -codes[i] } else { codes[i] })
}

/// A bit for each negative code.
fn sign_bits(codes: &[i8]) -> u8 {
    codes.iter().enumerate().fold(0, |bits, (i, c)| bits | u8::from(*c < 0) << i)
}

/// The little-endian number at byte `at`.
#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The little-endian number at byte `at`.
#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
