//! The rows of a forward call: segments of one or more sequences, one after another.

use crate::block::LayerState;
use crate::config::Config;
use crate::error::ForwardError;
use crate::scratch::Limits;
use std::ops::Range;
use strata_ops::backend::{Backend, SequenceRows};

/// What one sequence does in a forward call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which of the call's sequences; each may have one segment.
    pub seq: usize,
    /// How many of the call's tokens are its own, after those of the segments before it.
    pub rows: usize,
    /// Move the sequence past them. Without, they stay pending until [`Sequence::commit`](crate::Sequence::commit).
    pub commit: bool,
}

/// A segment and where its rows lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub seq: usize,
    pub rows: Range<usize>,
    /// Position of the first row in its sequence.
    pub first: usize,
    pub commit: bool,
    /// A value that is not finite was found in its rows.
    pub bad: bool,
}

/// The states of one layer, by sequence.
pub(crate) trait States<B: Backend> {
    fn of(&mut self, seq: usize) -> &mut LayerState<B>;

    /// Those of all sequences.
    fn all<'a>(&'a mut self) -> impl Iterator<Item = &'a mut LayerState<B>>
    where
        B: 'a;
}

/// The rows of every part with a state of its sequence.
pub(crate) fn with_states<'a, B: Backend + 'a, S: 'a>(
    states: &'a mut impl States<B>,
    parts: &'a [Part],
    pick: impl Fn(&'a mut LayerState<B>) -> &'a mut S,
) -> impl Iterator<Item = SequenceRows<'a, S>> {
    states.all().enumerate().filter_map(move |(seq, state)| {
        let p = parts.iter().find(|p| p.seq == seq)?;
        Some(SequenceRows { rows: p.rows.clone(), first: p.first, commit: p.commit, state: pick(state) })
    })
}

/// Rows of all parts.
pub(crate) fn total(parts: &[Part]) -> usize {
    parts.last().map_or(0, |p| p.rows.end)
}

/// Every row of the parts with its position in its sequence.
pub(crate) fn positions(parts: &[Part]) -> impl Iterator<Item = (usize, usize)> {
    parts.iter().flat_map(|p| p.rows.clone().map(|row| (row, p.first + row - p.rows.start)))
}

/// Lays segments out in `parts`, in order. `place(seq)` is the sequence's length and capacity; the token of a row is an input at
/// `offset` places after the row's.
///
/// # Errors
/// Too many rows, a sequence that would be too long, ids out of range.
///
/// # Panics
/// If the segments' rows are not those of `tokens`, a segment is empty or a sequence has two.
pub(crate) fn lay_out(
    parts: &mut Vec<Part>,
    limits: &Limits,
    c: &Config,
    segments: &[Segment],
    tokens: &[u32],
    offset: usize,
    place: impl Fn(usize) -> (usize, usize),
) -> Result<(), ForwardError> {
    parts.clear();
    if tokens.len() > limits.rows {
        return Err(ForwardError::TooManyRows { found: tokens.len(), limit: limits.rows });
    }
    let mut start = 0;
    for s in segments {
        assert!(s.rows > 0 && parts.iter().all(|p| p.seq != s.seq), "a sequence has one segment of at least one row");
        let rows = start..start + s.rows;
        let (first, capacity) = place(s.seq);
        let (needed, capacity) = (first + s.rows, capacity.min(limits.capacity));
        if needed > capacity {
            return Err(ForwardError::ContextFull { needed, capacity });
        }
        if let Some(i) = tokens[rows.clone()].iter().position(|t| *t as usize >= c.vocab) {
            return Err(ForwardError::TokenOutOfRange { id: tokens[start + i], position: first + offset + i, vocab: c.vocab });
        }
        start = rows.end;
        parts.push(Part { seq: s.seq, rows, first, commit: s.commit, bad: false });
    }
    assert!(start == tokens.len(), "{start} rows in segments, {} tokens", tokens.len());
    Ok(())
}

/// Looks for values that are not finite in the wide rows `r`. Rows of a sequence that has one are set to zero, so that they
/// do no harm to the pass; true if there was one.
pub(crate) fn contain<B: Backend>(b: &B, r: &mut B::Buf, wide: usize, parts: &mut [Part]) -> bool {
    if b.all_finite(r, 0..total(parts) * wide) {
        return false;
    }
    for p in parts {
        let values = p.rows.start * wide..p.rows.end * wide;
        if !b.all_finite(r, values.clone()) {
            b.write(r, values.start, &vec![0.0; values.len()]);
            p.bad = true;
        }
    }
    true
}

/// The error of parts that went bad in `place`, if there are any.
pub(crate) fn verdict(parts: &[Part], place: Option<String>) -> Result<(), ForwardError> {
    match place {
        Some(place) => Err(ForwardError::NotFinite { place, which: parts.iter().filter(|p| p.bad).map(|p| p.seq).collect() }),
        None => Ok(()),
    }
}
