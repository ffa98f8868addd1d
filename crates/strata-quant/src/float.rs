//! F32, F16, BF16: a block is one value.

use half::{bf16, f16};

use crate::format::{decode_blocks, encode_blocks};

pub(crate) fn decode_f32(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b, v: &mut [f32; 1]| v[0] = f32::from_le_bytes(*b));
}

pub(crate) fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b, v: &mut [f32; 1]| v[0] = f16::from_le_bytes(*b).to_f32());
}

pub(crate) fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b, v: &mut [f32; 1]| v[0] = bf16::from_le_bytes(*b).to_f32());
}

pub(crate) fn encode_f32(values: &[f32], out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 1], b| *b = v[0].to_le_bytes());
}

/// Rounds to nearest, ties to even.
pub(crate) fn encode_f16(values: &[f32], out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 1], b| *b = f16::from_f32(v[0]).to_le_bytes());
}

/// Rounds to nearest, ties to even.
pub(crate) fn encode_bf16(values: &[f32], out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 1], b| *b = bf16::from_f32(v[0]).to_le_bytes());
}
