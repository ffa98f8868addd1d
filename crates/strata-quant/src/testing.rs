//! Reproducible random blocks, for the tests and benches of every crate that computes with weights.
//!
//! The stream is defined so that it is easily written in another language: the oracle script of this crate's tests
//! makes the same bytes in Python.

use crate::DType;
use crate::format::scales;

/// The splitmix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.state;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
/// types, are normal floats of either sign with magnitudes in [2^-10, 2^-5).
///
/// A float takes one word of the stream. A block takes a word for each 8 bytes or rest of them, little-endian, then
/// one for each of its scales, which overwrites its place.
pub fn random_blocks(dtype: DType, blocks: usize, rng: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = vec![0; blocks * dtype.block_bytes()];
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        match dtype {
            DType::F32 => block.copy_from_slice(&small_float(rng.next_u64(), 8, 23).to_le_bytes()),
            DType::F16 => block.copy_from_slice(&(small_float(rng.next_u64(), 5, 10) as u16).to_le_bytes()),
            DType::BF16 => block.copy_from_slice(&(small_float(rng.next_u64(), 8, 7) as u16).to_le_bytes()),
            _ => {
                for piece in block.chunks_mut(8) {
                    piece.copy_from_slice(&rng.next_u64().to_le_bytes()[..piece.len()]);
                }
                for at in scales(dtype).offsets() {
                    let scale = small_float(rng.next_u64(), 5, 10) as u16;
                    block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
    bytes
}
