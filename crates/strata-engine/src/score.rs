//! Logits of every position of a text, for evaluations.

use crate::engine::Engine;
use crate::error::EngineError;
use strata_model::Observer;
use strata_ops::backend::Backend;

impl<B: Backend> Engine<B> {
    /// Runs `tokens` as a new sequence and calls `row(position, logits)` for every position from `from` on.
    ///
    /// # Errors
    /// As [`Engine::start`]. The engine is left with an empty sequence.
    pub fn score(
        &mut self,
        tokens: &[u32],
        from: usize,
        mut observer: Option<&mut dyn Observer>,
        row: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.clear();
        let r = self.try_score(tokens, from, &mut observer, row);
        self.clear();
        r
    }

    fn try_score(
        &mut self,
        tokens: &[u32],
        from: usize,
        observer: &mut Option<&mut dyn Observer>,
        row: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let vocab = self.model.config().vocab;
        let head_rows = self.scratch.limits.head_rows;
        for (i, part) in tokens.chunks(self.options.chunk).enumerate() {
            let first = i * self.options.chunk;
            let watching: Option<&mut dyn Observer> = match observer {
                Some(o) => Some(&mut **o),
                None => None,
            };
            self.model.forward(&self.backend, &mut self.seq, &mut self.scratch, part, true, watching)?;
            let mut at = from.saturating_sub(first);
            while at < part.len() {
                let n = head_rows.min(part.len() - at);
                self.head(at, n)?;
                for (k, l) in self.logits[..n * vocab].chunks_exact(vocab).enumerate() {
                    row(first + at + k, l);
                }
                at += n;
            }
        }
        Ok(())
    }
}
