//! F32, F16, BF16: a block is one value.

use half::{bf16, f16};

use crate::block::FloatFormat;
use crate::encode::half_of;

/// IEEE binary32.
pub struct F32;
/// IEEE binary16.
pub struct F16;
/// The upper half of a binary32.
pub struct BF16;

impl FloatFormat for F32 {
    type Bytes = [u8; 4];
    const EXPONENT: u16 = 0x7f80;
    const MANTISSA: u32 = 23;

    #[inline(always)]
    fn value(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }

    fn bytes(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl FloatFormat for F16 {
    type Bytes = [u8; 2];
    const EXPONENT: u16 = 0x7c00;
    const MANTISSA: u32 = 10;

    #[inline(always)]
    fn value(bytes: [u8; 2]) -> f32 {
        f16::from_le_bytes(bytes).to_f32_const()
    }

    fn bytes(value: f32) -> [u8; 2] {
        half_of(value).to_le_bytes()
    }
}

impl FloatFormat for BF16 {
    type Bytes = [u8; 2];
    const EXPONENT: u16 = 0x7f80;
    const MANTISSA: u32 = 7;

    #[inline(always)]
    fn value(bytes: [u8; 2]) -> f32 {
        bf16::from_le_bytes(bytes).to_f32()
    }

    fn bytes(value: f32) -> [u8; 2] {
        bf16::from_f32(value.clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32())).to_le_bytes()
    }
}
