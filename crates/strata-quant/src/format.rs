//! Decoding, encoding and scale checks of rows of any format.

use thiserror::Error;

use crate::DType;
use crate::block::{BlockFormat, ByteArray, FloatFormat, IntegerForm, Visitor};

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
    #[error("value {0}: expected a finite number, found an infinity or NaN")]
    NotFinite(usize),
    #[error("expected the importance of {expected} values, found {found}")]
    Importance { expected: usize, found: usize },
    #[error("importance {0}: expected a finite number that is not negative")]
    BadImportance(usize),
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
    dtype.visit(Decode { bytes, out });
    Ok(())
}

struct Decode<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl Visitor for Decode<'_> {
    type Out = ();

    #[inline(always)]
    fn float<F: FloatFormat>(self) {
        self.out.iter_mut().zip(F::Bytes::all_of(self.bytes)).for_each(|(v, b)| *v = F::value(*b));
    }

    #[inline(always)]
    fn block<F: BlockFormat>(self) {
        for (block, out) in F::Bytes::all_of(self.bytes).iter().zip(self.out.chunks_exact_mut(F::LEN)) {
            let w = F::integers(block);
            for (j, (out, codes)) in out.chunks_exact_mut(F::SPAN).zip(w.codes().chunks_exact(F::SPAN)).enumerate() {
                let d = w.d(j * F::Integers::TERMS / F::Integers::SUBS) * f32::from(w.sub(j));
                if F::MAX_MIN > 0 {
                    let min = w.dmin() * f32::from(w.min(j));
                    out.iter_mut().zip(codes).for_each(|(v, c)| *v = d * f32::from(*c) - min);
                } else {
                    out.iter_mut().zip(codes).for_each(|(v, c)| *v = d * f32::from(*c));
                }
            }
        }
    }
}

/// Whether this build encodes a format.
pub fn can_encode(dtype: DType) -> bool {
    struct Can;
    impl Visitor for Can {
        type Out = bool;
        fn float<F: FloatFormat>(self) -> bool {
            true
        }
        fn block<F: BlockFormat>(self) -> bool {
            F::ENCODE.is_some()
        }
    }
    dtype.visit(Can)
}

/// Encodes finite values: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and the float types with the rounding of their reference encoder, the others
/// by a search for the least weighted error. Scales and floats too large for their type become the largest finite number.
///
/// # Errors
/// `out` is not the whole blocks of `values.len()` values, a value is not finite, or the format has no encoder here.
pub fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), QuantizeError> {
    quantize_weighted(dtype, values, None, out)
}

/// [`quantize`] with the importance of each value, a mean square of the activations it meets: then all formats with less than 8
/// bits a value search for the least weighted error.
///
/// # Errors
/// As [`quantize`], or the importance is of another number of values, negative or not finite.
pub fn quantize_weighted(dtype: DType, values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<(), QuantizeError> {
    check_size(dtype, out.len(), values.len())?;
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        return Err(QuantizeError::NotFinite(i));
    }
    if let Some(importance) = importance {
        if importance.len() != values.len() {
            return Err(QuantizeError::Importance { expected: values.len(), found: importance.len() });
        }
        if let Some(i) = importance.iter().position(|v| !(0.0..f32::INFINITY).contains(v)) {
            return Err(QuantizeError::BadImportance(i));
        }
    }
    dtype.visit(Write { values, importance, out }).ok_or(QuantizeError::Unsupported(dtype))
}

struct Write<'a> {
    values: &'a [f32],
    importance: Option<&'a [f32]>,
    out: &'a mut [u8],
}

impl Visitor for Write<'_> {
    type Out = Option<()>;

    fn float<F: FloatFormat>(self) -> Option<()> {
        let out = self.out.chunks_exact_mut(F::Bytes::LEN);
        self.values.iter().zip(out).for_each(|(v, b)| b.copy_from_slice(F::bytes(*v).bytes()));
        Some(())
    }

    fn block<F: BlockFormat>(self) -> Option<()> {
        F::ENCODE.map(|encode| encode(self.values, self.importance, self.out))
    }
}

/// Index of the first block that has an infinite or NaN scale; of the first such value in a float type. Reads the
/// scales only. Bytes after the last whole block are not looked at.
pub fn first_non_finite(dtype: DType, bytes: &[u8]) -> Option<usize> {
    dtype.visit(Find(bytes))
}

struct Find<'a>(&'a [u8]);

impl Visitor for Find<'_> {
    type Out = Option<usize>;

    fn float<F: FloatFormat>(self) -> Option<usize> {
        // per run of values first, without an early exit: that loop is vectorised
        const RUN: usize = 256;
        let bad = |b: &F::Bytes| {
            let b = b.bytes();
            u16::from_le_bytes([b[b.len() - 2], b[b.len() - 1]]) & F::EXPONENT == F::EXPONENT
        };
        let values = F::Bytes::all_of(self.0);
        let run = values.chunks(RUN).position(|run| run.iter().fold(false, |any, b| any | bad(b)))?;
        values[run * RUN..].iter().position(bad).map(|i| run * RUN + i)
    }

    fn block<F: BlockFormat>(self) -> Option<usize> {
        F::Bytes::all_of(self.0).iter().position(|block| !F::SCALES.finite(block.bytes()))
    }
}

/// Runs `f` on each `L` values with their block of `B` bytes.
#[inline(always)]
pub(crate) fn encode_blocks<const L: usize, const B: usize>(values: &[f32], out: &mut [u8], f: impl Fn(&[f32; L], &mut [u8; B])) {
    values.as_chunks().0.iter().zip(out.as_chunks_mut().0).for_each(|(values, block)| f(values, block));
}
