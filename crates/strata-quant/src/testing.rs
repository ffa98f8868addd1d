//! Reproducible random blocks, for the tests and benches of every crate that computes with weights.
//!
//! The stream is defined so that it is easily written in another language: the oracle script of this crate's tests
//! makes the same bytes in Python.

use half::f16;

use crate::DType;
use crate::block::{BlockFormat, ByteArray, FloatFormat, Visitor};

/// The splitmix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    seed: u64,
    next: u64,
}

impl SplitMix64 {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    /// Word `i` of the stream of `seed`: what the call of [`SplitMix64::next_u64`] with this number, from 0, gives.
    #[inline(always)]
    pub fn word(seed: u64, i: u64) -> u64 {
        let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i.wrapping_add(1)));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let (seed, i) = (self.seed, self.next);
        self.next = i.wrapping_add(1);
        SplitMix64::word(seed, i)
    }

    /// A random multiple of 2^-23 in [-1, 1).
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

/// Bits of a random float of either sign with magnitude in [2^-10, 2^-5), from one random word.
fn small_float(word: u64, exponent_bits: u32, mantissa_bits: u32) -> u32 {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let sign = word >> 63;
    let exponent = bias - 10 + ((word >> 32) & 0x7fff_ffff) % 5;
    let mantissa = word & ((1 << mantissa_bits) - 1);
    ((sign << exponent_bits | exponent) << mantissa_bits | mantissa) as u32
}

/// `blocks` random blocks of a format. Codes and sub-scales are random bits; block scales, and the values of float
/// types, are normal floats of either sign with magnitudes in [2^-10, 2^-5), or powers of two from 2^-10 to 2^-6.
///
/// A float takes one word of the stream. A block takes a word for each 8 bytes or rest of them, little-endian, then
/// one for each of its scales that could be infinite or NaN, which overwrites its place.
pub fn random_blocks(dtype: DType, blocks: usize, rng: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = vec![0; blocks * dtype.block_bytes()];
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        dtype.visit(Random { block, rng });
    }
    bytes
}

struct Random<'a> {
    block: &'a mut [u8],
    rng: &'a mut SplitMix64,
}

impl Visitor for Random<'_> {
    type Out = ();

    fn float<F: FloatFormat>(self) {
        let bits = F::Bytes::LEN as u32 * 8;
        let float = small_float(self.rng.next_u64(), bits - 1 - F::MANTISSA, F::MANTISSA);
        self.block.copy_from_slice(&float.to_le_bytes()[..F::Bytes::LEN]);
    }

    fn block<F: BlockFormat>(self) {
        for piece in self.block.chunks_mut(8) {
            piece.copy_from_slice(&self.rng.next_u64().to_le_bytes()[..piece.len()]);
        }
        for i in 0..F::SCALES.count() {
            F::SCALES.put(self.block, i, f16::from_bits(small_float(self.rng.next_u64(), 5, 10) as u16));
        }
    }
}

/// Overwrites the scales of whole blocks, those that could be infinite or NaN, by what `scale` gives for each; a format whose
/// scales are powers of two takes the one at or below the magnitude. Does nothing for float types.
pub fn put_scales(dtype: DType, bytes: &mut [u8], scale: impl FnMut() -> f16) {
    dtype.visit(Put { bytes, scale });
}

struct Put<'a, S> {
    bytes: &'a mut [u8],
    scale: S,
}

impl<S: FnMut() -> f16> Visitor for Put<'_, S> {
    type Out = ();

    fn float<F: FloatFormat>(self) {}

    fn block<F: BlockFormat>(mut self) {
        for block in self.bytes.chunks_exact_mut(F::Bytes::LEN) {
            (0..F::SCALES.count()).for_each(|i| F::SCALES.put(block, i, (self.scale)()));
        }
    }
}

/// `values` encoded and decoded.
#[cfg(test)]
pub(crate) fn round_trip(dtype: DType, values: &[f32]) -> Vec<f32> {
    let mut blocks = vec![0; dtype.row_bytes(values.len()).unwrap()];
    let mut out = vec![0.0; values.len()];
    crate::quantize(dtype, values, &mut blocks).unwrap();
    crate::dequantize(dtype, &blocks, &mut out).unwrap();
    out
}
