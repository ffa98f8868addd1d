//! Logits of every position of a text, for evaluations.

use crate::engine::{Engine, SLOT};
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
        let batch = &mut self.batch;
        let vocab = batch.model.config().vocab;
        let (head_rows, chunk) = (batch.scratch.limits.head_rows, batch.options.chunk);
        for (i, part) in tokens.chunks(chunk).enumerate() {
            let first = i * chunk;
            let watching: Option<&mut dyn Observer> = match observer {
                Some(o) => Some(&mut **o),
                None => None,
            };
            batch.run(SLOT, part, watching)?;
            let mut at = from.saturating_sub(first);
            while at < part.len() {
                let n = head_rows.min(part.len() - at);
                batch.head(at..at + n)?;
                for (k, l) in batch.logits[..n * vocab].chunks_exact(vocab).enumerate() {
                    row(first + at + k, l);
                }
                at += n;
            }
        }
        Ok(())
    }
}

/// Takes a position and the logits of two engines.
pub type PairRow<'a> = dyn FnMut(usize, &[f32], &[f32]) + 'a;

/// Runs `tokens` as a new sequence of both engines, chunk by chunk in turn, and calls `row(position, logits of a, logits of b)`
/// for every position from `from` on. Never more logits are held than one head call of each gives.
///
/// # Errors
/// As [`Engine::score`], or vocabularies that differ. Both engines are left with an empty sequence.
pub fn score_pair<A: Backend, B: Backend>(
    a: &mut Engine<A>,
    b: &mut Engine<B>,
    tokens: &[u32],
    from: usize,
    row: &mut PairRow<'_>,
) -> Result<(), EngineError> {
    a.clear();
    b.clear();
    let r = try_score_pair(a, b, tokens, from, row);
    a.clear();
    b.clear();
    r
}

fn try_score_pair<A: Backend, B: Backend>(
    a: &mut Engine<A>,
    b: &mut Engine<B>,
    tokens: &[u32],
    from: usize,
    row: &mut PairRow<'_>,
) -> Result<(), EngineError> {
    let (a, b) = (&mut a.batch, &mut b.batch);
    let (vocab, other) = (a.model.config().vocab, b.model.config().vocab);
    if vocab != other {
        let (expected, found) = (format!("{other} ids, as the base has"), vocab.to_string());
        return Err(EngineError::Option { field: "vocabulary", expected, found });
    }
    let chunk = a.options.chunk.min(b.options.chunk);
    let head_rows = a.scratch.limits.head_rows.min(b.scratch.limits.head_rows);
    for (i, part) in tokens.chunks(chunk).enumerate() {
        let first = i * chunk;
        a.run(SLOT, part, None)?;
        b.run(SLOT, part, None)?;
        let mut at = from.saturating_sub(first);
        while at < part.len() {
            let n = head_rows.min(part.len() - at);
            a.head(at..at + n)?;
            b.head(at..at + n)?;
            let rows = a.logits[..n * vocab].chunks_exact(vocab).zip(b.logits[..n * vocab].chunks_exact(vocab));
            rows.enumerate().for_each(|(k, (x, y))| row(first + at + k, x, y));
            at += n;
        }
    }
    Ok(())
}
