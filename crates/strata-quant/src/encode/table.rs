//! Codes from a table of values in ascending order.

use super::fit::{Codec, inverse};

/// Ascending values.
pub(crate) struct Table {
    values: &'static [i8],
    /// Between one value and the next.
    middles: Vec<f32>,
    tries: Vec<f32>,
}

impl Table {
    /// `values` has a negative first and a positive last element.
    pub fn new(values: &'static [i8]) -> Table {
        let middles = values.windows(2).map(|v| (f32::from(v[0]) + f32::from(v[1])) / 2.0).collect();
        let ends = [f32::from(values[0]), f32::from(values[values.len() - 1])];
        let tries = ends.iter().flat_map(|end| (-10..=6).map(move |k| end * (1.0 + k as f32 * 0.025))).collect();
        Table { values, middles, tries }
    }

    /// Where a code stands in the table.
    pub fn rank(&self, code: i8) -> u8 {
        self.values.partition_point(|v| *v < code) as u8
    }
}

impl Codec for Table {
    const SIGNED: bool = true;

    fn tries(&self) -> &[f32] {
        &self.tries
    }

    fn codes(&self, x: &[f32], _: &[f32], s: f32, codes: &mut [i8]) {
        let inverse = inverse(s);
        for (c, x) in codes.iter_mut().zip(x) {
            let v = x * inverse;
            let rank: usize = self.middles.iter().map(|m| usize::from(v > *m)).sum();
            *c = self.values[rank];
        }
    }
}
