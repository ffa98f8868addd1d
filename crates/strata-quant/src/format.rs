//! The format table: which functions decode and encode each format, and where its scales are.

use thiserror::Error;

use crate::{DType, float, iq_grid, iq4, k_quants, q_simple};

/// Decodes whole blocks into as many values as they hold.
type Decode = fn(&[u8], &mut [f32]);
/// Encodes values into as many whole blocks as they fill.
type Encode = fn(&[f32], &mut [u8]);

/// One format's functions.
struct Format {
    decode: Decode,
    /// For formats this build can write.
    encode: Option<Encode>,
    scales: Scales,
}

/// The floats of a block that must be finite, each given by the two bytes that have its exponent: block scales, or
/// the value itself in a float type.
#[derive(Clone, Copy)]
pub(crate) struct Scales {
    /// Offset of the first in its block, in bytes; further ones follow at once.
    pub at: usize,
    pub count: usize,
    /// The exponent's bits; all ones mean infinity or NaN.
    pub exponent: u16,
}

/// Exponent bits of an f16.
const HALF: u16 = 0x7c00;
/// Exponent bits of a bf16, and of the upper half of an f32.
const BRAIN: u16 = 0x7f80;

const fn format(dtype: DType) -> Format {
    const fn row(decode: Decode, encode: Option<Encode>, at: usize, count: usize, exponent: u16) -> Format {
        Format { decode, encode, scales: Scales { at, count, exponent } }
    }
    match dtype {
        DType::F32 => row(float::decode_f32, Some(float::encode_f32), 2, 1, BRAIN),
        DType::F16 => row(float::decode_f16, Some(float::encode_f16), 0, 1, HALF),
        DType::BF16 => row(float::decode_bf16, Some(float::encode_bf16), 0, 1, BRAIN),
        DType::Q8_0 => row(q_simple::decode_q8_0, Some(q_simple::encode_q8_0), 0, 1, HALF),
        DType::Q4_0 => row(q_simple::decode_q4_0, Some(q_simple::encode_q4_0), 0, 1, HALF),
        DType::Q4_K => row(k_quants::decode_q4_k, None, 0, 2, HALF),
        DType::Q5_K => row(k_quants::decode_q5_k, None, 0, 2, HALF),
        DType::Q6_K => row(k_quants::decode_q6_k, None, 208, 1, HALF),
        DType::IQ4_NL => row(iq4::decode_iq4_nl, None, 0, 1, HALF),
        DType::IQ4_XS => row(iq4::decode_iq4_xs, None, 0, 1, HALF),
        DType::IQ3_S => row(iq_grid::decode_iq3_s, None, 0, 1, HALF),
        DType::IQ2_XS => row(iq_grid::decode_iq2_xs, None, 0, 1, HALF),
    }
}

/// The bytes and the values of a call are not those of one run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{dtype}: {bytes} bytes and {values} values are not the same whole blocks ({block_bytes} bytes, {block_len} values each)",
    block_bytes = dtype.block_bytes(), block_len = dtype.block_len())]
pub struct SizeError {
    pub dtype: DType,
    pub bytes: usize,
    pub values: usize,
}

/// What can be wrong with a call of [`quantize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuantizeError {
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("{0}: this build decodes the format but does not encode it")]
    Unsupported(DType),
}

fn check_size(dtype: DType, bytes: usize, values: usize) -> Result<(), SizeError> {
    if dtype.row_bytes(values) == Some(bytes) { Ok(()) } else { Err(SizeError { dtype, bytes, values }) }
}

/// Decodes blocks to the `f32` values they stand for, exactly as the formats are defined: products and differences of
/// `f32` numbers, each rounded once.
///
/// # Errors
/// `bytes` is not the whole blocks of `out.len()` values.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), SizeError> {
    check_size(dtype, bytes.len(), out.len())?;
    (format(dtype).decode)(bytes, out);
    Ok(())
}

/// Encodes finite values, with the rounding of the format's reference encoder.
///
/// # Errors
/// `out` is not the whole blocks of `values.len()` values, or the format has no encoder here (K and IQ formats).
pub fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), QuantizeError> {
    check_size(dtype, out.len(), values.len())?;
    let encode = format(dtype).encode.ok_or(QuantizeError::Unsupported(dtype))?;
    encode(values, out);
    Ok(())
}

/// Index of the first block that has an infinite or NaN scale; of the first such value in a float type. Reads the
/// scales only. Bytes after the last whole block are not looked at.
pub fn first_non_finite(dtype: DType, bytes: &[u8]) -> Option<usize> {
    let scales = scales(dtype);
    let bad = |block: &[u8]| scales.of(block).any(|bits| bits & scales.exponent == scales.exponent);
    // per run of blocks first, without an early exit: for the float types that loop is vectorised
    const RUN: usize = 256;
    let run_bytes = RUN * dtype.block_bytes();
    let run = match dtype.block_bytes() {
        2 => bytes.chunks(run_bytes).position(|run| any_in::<2>(run, scales)),
        4 => bytes.chunks(run_bytes).position(|run| any_in::<4>(run, scales)),
        n => bytes.chunks(run_bytes).position(|run| run.chunks_exact(n).any(bad)),
    }?;
    bytes[run * run_bytes..].chunks_exact(dtype.block_bytes()).position(bad).map(|i| run * RUN + i)
}

/// Whether any value of a run of floats of `N` bytes is infinite or NaN.
fn any_in<const N: usize>(run: &[u8], scales: Scales) -> bool {
    let upper = |v: &[u8; N]| u16::from_le_bytes([v[N - 2], v[N - 1]]);
    run.as_chunks::<N>().0.iter().fold(false, |any, v| any | (upper(v) & scales.exponent == scales.exponent))
}

pub(crate) fn scales(dtype: DType) -> Scales {
    format(dtype).scales
}

impl Scales {
    /// Offsets in a block.
    pub fn offsets(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| self.at + 2 * i)
    }

    /// The scales' upper bits.
    fn of(self, block: &[u8]) -> impl Iterator<Item = u16> {
        self.offsets().map(|at| u16::from_le_bytes([block[at], block[at + 1]]))
    }
}

/// Runs `f` on each block of `B` bytes with its `L` values.
#[inline(always)]
pub(crate) fn decode_blocks<const B: usize, const L: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn(&[u8; B], &mut [f32; L])) {
    bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0).for_each(|(block, values)| f(block, values));
}

/// Runs `f` on each `L` values with their block of `B` bytes.
#[inline(always)]
pub(crate) fn encode_blocks<const L: usize, const B: usize>(values: &[f32], out: &mut [u8], f: impl Fn(&[f32; L], &mut [u8; B])) {
    values.as_chunks().0.iter().zip(out.as_chunks_mut().0).for_each(|(values, block)| f(values, block));
}

/// The half-precision scale at offset `at` of a block.
#[inline(always)]
pub(crate) fn half_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
