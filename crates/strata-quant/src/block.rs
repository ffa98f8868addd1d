//! What a format is to the rest of the engine: a run of bytes that stands for a scale times integers.
//!
//! A format implements [`BlockFormat`] (or [`FloatFormat`]) in its file under `formats/` and has one row in the table of
//! `dtype.rs`. Decoding, scale checks, random test blocks and the products of `strata-ops` follow from the trait.

use half::f16;

/// An array type, `[u8; N]`: what a slice of blocks is cut into.
pub trait ByteArray: Copy + Send + Sync + 'static {
    /// Bytes.
    const LEN: usize;
    /// The whole arrays at the start of `bytes`.
    fn all_of(bytes: &[u8]) -> &[Self];
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

impl<const N: usize> ByteArray for [u8; N] {
    const LEN: usize = N;

    #[inline(always)]
    fn all_of(bytes: &[u8]) -> &[[u8; N]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A block of `LEN` values taken apart: value i is `d[term] * subs[sub] * codes[i] - dmin * mins[sub]`.
///
/// The values are cut into `SUBS` sub-blocks of equal width, and these into `TERMS` terms: what a product turns into a float
/// at a time. A format without sub-scales has ones there; one without minima has zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integers<const LEN: usize, const SUBS: usize, const TERMS: usize> {
    /// Scale of each term.
    pub d: [f32; TERMS],
    /// Scale of the minima.
    pub dmin: f32,
    /// The integer of each value.
    pub codes: [i8; LEN],
    /// Integer scale of each sub-block.
    pub subs: [i8; SUBS],
    /// Integer minimum of each sub-block.
    pub mins: [u8; SUBS],
}

impl<const LEN: usize> Integers<LEN, 1, 1> {
    /// One scale and the codes.
    #[inline(always)]
    pub fn plain(d: f32, codes: [i8; LEN]) -> Self {
        Integers { d: [d], dmin: 0.0, codes, subs: [1], mins: [0] }
    }

    /// Values `d * code + offset`.
    #[inline(always)]
    pub fn offset(d: f32, offset: f32, codes: [i8; LEN]) -> Self {
        Integers { d: [d], dmin: -offset, codes, subs: [1], mins: [1] }
    }
}

impl<const LEN: usize, const SUBS: usize> Integers<LEN, SUBS, 1> {
    /// A scale, sub-scales and codes.
    #[inline(always)]
    pub fn scaled(d: f32, subs: [i8; SUBS], codes: [i8; LEN]) -> Self {
        Integers { d: [d], dmin: 0.0, codes, subs, mins: [0; SUBS] }
    }
}

/// [`Integers`] of any size, as slices.
pub trait IntegerForm: Sized {
    /// Values a block.
    const LEN: usize;
    /// Sub-blocks a block.
    const SUBS: usize;
    /// Terms a block: products add one float to a chain for each.
    const TERMS: usize;
    /// Scale of term `t`.
    fn d(&self, t: usize) -> f32;
    /// Scale of the minima.
    fn dmin(&self) -> f32;
    /// The integers of the values.
    fn codes(&self) -> &[i8];
    /// Integer scale of sub-block `j`.
    fn sub(&self, j: usize) -> i8;
    /// Integer minimum of sub-block `j`.
    fn min(&self, j: usize) -> u8;
}

impl<const LEN: usize, const SUBS: usize, const TERMS: usize> IntegerForm for Integers<LEN, SUBS, TERMS> {
    const LEN: usize = LEN;
    const SUBS: usize = SUBS;
    const TERMS: usize = TERMS;

    #[inline(always)]
    fn d(&self, t: usize) -> f32 {
        self.d[t]
    }

    #[inline(always)]
    fn dmin(&self) -> f32 {
        self.dmin
    }

    #[inline(always)]
    fn codes(&self) -> &[i8] {
        &self.codes
    }

    #[inline(always)]
    fn sub(&self, j: usize) -> i8 {
        self.subs[j]
    }

    #[inline(always)]
    fn min(&self, j: usize) -> u8 {
        self.mins[j]
    }
}

/// A format whose blocks are scales times integers.
pub trait BlockFormat: 'static {
    /// A block in a file, `[u8; BYTES]`.
    type Bytes: ByteArray;
    /// A block taken apart, [`Integers`].
    type Integers: IntegerForm;
    /// Values a block: 32, 64 or 256. Those of 256 meet activations with a scale for every 256, the others for every 32.
    const LEN: usize = Self::Integers::LEN;
    /// Values a sub-block.
    const SPAN: usize = Self::LEN / Self::Integers::SUBS;
    /// Largest magnitude of a code. [`BlockFormat::MAX_SUM`] follows from the three.
    const MAX_CODE: i32;
    /// Largest magnitude of a sub-scale.
    const MAX_SUB: i32 = 1;
    /// Largest minimum; 0 for formats without minima.
    const MAX_MIN: i32 = 0;
    /// What no integer sum of a block with int8 activations (-127..=127) exceeds.
    const MAX_SUM: i64 = {
        let largest = if Self::MAX_CODE * Self::MAX_SUB > Self::MAX_MIN { Self::MAX_CODE * Self::MAX_SUB } else { Self::MAX_MIN };
        Self::LEN as i64 * 127 * largest as i64
    };
    /// Where the block's scales are.
    const SCALES: Scales;
    /// Writes blocks, if this build can.
    const ENCODE: Option<Encode> = None;

    /// Takes a block apart.
    fn integers(block: &Self::Bytes) -> Self::Integers;
}

/// A format of one float a value.
pub trait FloatFormat: 'static {
    /// A value in a file.
    type Bytes: ByteArray;
    /// Exponent bits of the upper two bytes; all ones mean infinity or NaN.
    const EXPONENT: u16;
    /// Mantissa bits.
    const MANTISSA: u32;
    /// The value, exactly.
    fn value(bytes: Self::Bytes) -> f32;
    /// Rounds to nearest, ties to even; what is too large becomes the largest finite number.
    fn bytes(value: f32) -> Self::Bytes;
}

/// Encodes finite values, with the importance of each if there is one, into as many whole blocks as they fill.
pub type Encode = fn(&[f32], Option<&[f32]>, &mut [u8]);

/// The scales of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// An f16 at each of these bytes.
    Half(&'static [usize]),
    /// One f16 cut into the upper four bits of the four little-endian u16 from this byte on, lowest bits first (IQ1_M).
    Quarters(usize),
    /// A power of two at this byte: 2^(e - 127), not a number for 255.
    Exponent(usize),
    /// UE4M3 bytes, all of which stand for finite numbers.
    Finite,
}

impl Scales {
    /// How many may be infinite or NaN.
    pub(crate) fn count(self) -> usize {
        match self {
            Scales::Half(at) => at.len(),
            Scales::Quarters(_) | Scales::Exponent(_) => 1,
            Scales::Finite => 0,
        }
    }

    /// Whether a block's scales are all finite.
    #[inline(always)]
    pub(crate) fn finite(self, block: &[u8]) -> bool {
        const EXPONENT: u16 = 0x7c00;
        let half = |bits: u16| bits & EXPONENT != EXPONENT;
        match self {
            Scales::Half(at) => at.iter().all(|&at| half(u16::from_le_bytes([block[at], block[at + 1]]))),
            Scales::Quarters(at) => half(quarters(block, at)),
            Scales::Exponent(at) => block[at] != 0xff,
            Scales::Finite => true,
        }
    }

    /// Writes scale `i`: an f16, or the power of two at or below its magnitude.
    pub(crate) fn put(self, block: &mut [u8], i: usize, scale: f16) {
        match self {
            Scales::Half(at) => block[at[i]..at[i] + 2].copy_from_slice(&scale.to_le_bytes()),
            Scales::Quarters(at) => {
                for quarter in 0..4 {
                    let high = &mut block[at + 2 * quarter + 1];
                    *high = *high & 15 | ((scale.to_bits() >> (4 * quarter) & 15) as u8) << 4;
                }
            }
            Scales::Exponent(at) => block[at] = (scale.to_f32().to_bits() >> 23) as u8,
            Scales::Finite => {}
        }
    }
}

/// The bits of an f16 that [`Scales::Quarters`] describes.
#[inline(always)]
pub(crate) fn quarters(block: &[u8], at: usize) -> u16 {
    (0..4).fold(0, |bits, quarter| bits | u16::from(block[at + 2 * quarter + 1] >> 4) << (4 * quarter))
}

/// The f16 at byte `at` of a block.
#[inline(always)]
pub fn half_at(block: &[u8], at: usize) -> f32 {
    // the const conversion does not look for CPU features on every call
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32_const()
}

/// Something done with a format known at run time, see [`crate::DType::visit`].
pub trait Visitor {
    /// What comes out.
    type Out;
    /// For a float format.
    fn float<F: FloatFormat>(self) -> Self::Out;
    /// For a block format.
    fn block<F: BlockFormat>(self) -> Self::Out;
}
