//! Codes that are consecutive integers.

use super::fit::{Codec, inverse};

/// The integers `low..=high`.
pub(crate) struct Linear {
    low: f32,
    high: f32,
    tries: Vec<f32>,
}

impl Linear {
    /// `low` is negative.
    pub fn new(low: i32, high: i32) -> Linear {
        let (low, high) = (low as f32, high as f32);
        // half a step around either end; where there are few codes, clipping pays sooner
        let around = |end: f32| (-12..=12).map(move |k| end + k as f32 * if high < 8.0 { 0.125 } else { 0.0625 });
        let tries = around(low).chain(around(high)).filter(|t| t.abs() >= 0.5).collect();
        Linear { low, high, tries }
    }
}

/// The nearest integer, ties to even, of a number that is far below 2^22.
#[inline(always)]
pub(super) fn round(v: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    (v + MAGIC) - MAGIC
}

impl Codec for Linear {
    const SIGNED: bool = true;

    fn tries(&self) -> &[f32] {
        &self.tries
    }

    fn codes(&self, x: &[f32], _: &[f32], s: f32, codes: &mut [i8]) {
        let inverse = inverse(s);
        for (c, x) in codes.iter_mut().zip(x) {
            *c = round((x * inverse).clamp(self.low, self.high)) as i32 as i8;
        }
    }
}
