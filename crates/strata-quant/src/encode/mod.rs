//! Encoders: the integers of a block whose values come nearest to given ones, by weighted squared error.
//!
//! A value's weight is its importance (1 where none is given) times sqrt(mean square of the block + its square): large values
//! count more, as their products do, but small ones are not given up. `fit` finds scales and codes, `offset` those of formats with
//! minima, `linear`, `table` and `grid` know the codes there are. The formats' files put the result into bytes.

mod fit;
pub(crate) mod grid;
mod linear;
mod offset;
pub(crate) mod table;

pub(crate) use fit::{Codec, SubScales, error, fit, super_block};
pub(crate) use linear::Linear;
pub(crate) use offset::{codes, fit_offset, super_block_with_minima};

use half::f16;

/// The values of a block that is not all zeros, divided by the largest magnitude, and their weights.
pub(crate) struct Values<const L: usize> {
    pub x: [f32; L],
    pub w: [f32; L],
    pub amax: f32,
}

impl<const L: usize> Values<L> {
    fn new(values: &[f32; L], importance: Option<&[f32; L]>) -> Option<Values<L>> {
        let amax = values.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        if amax == 0.0 {
            return None;
        }
        let x = values.map(|x| x / amax);
        let mean_square = x.iter().map(|x| x * x).sum::<f32>() / L as f32;
        let mut w = x.map(|x| (mean_square + x * x).sqrt());
        if let Some(importance) = importance {
            let largest = importance.iter().fold(0.0f32, |m, v| m.max(*v));
            if largest > 0.0 {
                // a value that was never used still has to stay a sane number
                w.iter_mut().zip(importance).for_each(|(w, v)| *w *= (v / largest).max(1e-4));
            }
        }
        Some(Values { x, w, amax })
    }

    /// The nearest scale that a half can hold, for a scale of the divided values; `unit` times the scale is what is stored.
    pub fn half(&self, d: f32, unit: f32) -> Rounded {
        let stored = half_of(d * self.amax * unit);
        let scale = stored.to_f32() / unit;
        Rounded { scale, d: scale / self.amax }
    }
}

/// A scale as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Rounded {
    /// For the values.
    pub scale: f32,
    /// For the divided values.
    pub d: f32,
}

/// The nearest half that is finite.
pub(crate) fn half_of(x: f32) -> f16 {
    f16::from_f32(x.clamp(-65504.0, 65504.0))
}

/// Encodes blocks by `f`; those of zeros, and those for which it finds no scale, become zero bytes.
pub(crate) fn blocks<const L: usize, const B: usize>(
    values: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
    f: impl Fn(&Values<L>) -> Option<[u8; B]>,
) {
    for (i, (values, block)) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0).enumerate() {
        let importance = importance.and_then(|v| v.as_chunks().0.get(i));
        *block = Values::new(values, importance).and_then(|v| f(&v)).unwrap_or([0; B]);
    }
}
