//! The embedding of a text: the mean of its final hidden states, whatever runs beside it and however it is cut into chunks.

use crate::batch::Batch;
use crate::error::EngineError;
use std::ops::Range;
use strata_ops::backend::Backend;

/// A sum of rows: in f64, each element's terms in the order of positions.
pub(crate) struct Mean {
    sum: Vec<f64>,
    rows: usize,
}

impl Mean {
    pub fn new(width: usize) -> Mean {
        Mean { sum: vec![0.0; width], rows: 0 }
    }

    pub fn add(&mut self, row: &[f32]) {
        self.sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
        self.rows += 1;
    }

    /// The mean, rounded once to f32.
    pub fn value(&self) -> Vec<f32> {
        self.sum.iter().map(|s| (s / self.rows as f64) as f32).collect()
    }
}

impl<B: Backend> Batch<B> {
    /// Adds rows of the last pass to the mean of their slot.
    pub(crate) fn add_to_mean(&mut self, slot: usize, rows: Range<usize>) -> Result<(), EngineError> {
        let (width, most) = (self.model.config().hidden, self.scratch.limits.head_rows);
        let Some(mean) = &mut self.slots[slot].mean else { return Ok(()) };
        for from in rows.clone().step_by(most) {
            let n = most.min(rows.end - from);
            self.model.final_hidden(&self.backend, &mut self.scratch, from..from + n)?;
            for i in 0..n {
                self.backend.read(self.scratch.final_hidden(), i * width, &mut self.hidden);
                mean.add(&self.hidden);
            }
        }
        Ok(())
    }

    /// The embedding of a slot whose prompt was read to its end by a step. The slot is empty afterwards.
    pub fn take_embedding(&mut self, slot: usize) -> Option<Vec<f32>> {
        if self.unread(slot) > 0 {
            return None;
        }
        let mean = self.slots[slot].mean.take()?;
        // the drafter did not follow it
        self.clear(slot);
        Some(mean.value())
    }
}
