//! The state of one sequence: caches, recurrent and convolution states, the tokens that the n-gram hash looks back at.

use crate::block::LayerState;
use crate::config::{Config, LayerKind};
use crate::gdn::GdnState;
use crate::model::Model;
use crate::ngram::NgramState;
use crate::segment::States;
use strata_ops::backend::{Backend, OpError};
use strata_ops::qsa::kv::KvKind;

/// One sequence on the trunk. Rows run without commit stay pending until [`Sequence::commit`] keeps some of them.
pub struct Sequence<B: Backend> {
    pub(crate) layers: Vec<LayerState<B>>,
    pub(crate) ngram: Option<NgramState<B>>,
    /// Committed tokens, the last few: at most the hash's context.
    pub(crate) tail: Vec<u32>,
    /// Tokens run but not committed.
    pub(crate) pending: Vec<u32>,
    pub(crate) len: usize,
    pub(crate) capacity: usize,
    pub(crate) window: usize,
}

impl<B: Backend> Sequence<B> {
    /// An empty sequence of up to `capacity` tokens; up to `window` rows may be pending at a time.
    pub fn new(b: &B, model: &Model<B>, kind: KvKind, capacity: usize, window: usize) -> Result<Self, OpError> {
        let c = model.config();
        let layers = c
            .layers
            .iter()
            .map(|k| {
                Ok(match k {
                    LayerKind::Gdn => LayerState::Gdn(GdnState::new(b, c, window)?),
                    LayerKind::Qsa => LayerState::Qsa(b.kv_cache(c.qsa, kind, capacity)?),
                })
            })
            .collect::<Result<_, OpError>>()?;
        let context = model.hash().map_or(0, |h| h.context());
        Ok(Sequence {
            layers,
            ngram: c.ngram.as_ref().map(|p| NgramState::new(b, c, p, window)).transpose()?,
            tail: Vec::with_capacity(context + 1),
            pending: Vec::with_capacity(window),
            len: 0,
            capacity,
            window,
        })
    }

    /// Committed tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens that the sequence can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps the first `n` pending rows and drops the others.
    ///
    /// # Panics
    /// If fewer than `n` rows are pending.
    pub fn commit(&mut self, b: &B, c: &Config, n: usize) {
        assert!(n <= self.pending.len(), "{n} rows to commit, {} pending", self.pending.len());
        for l in &mut self.layers {
            match l {
                LayerState::Gdn(g) => g.commit(b, c, n),
                LayerState::Qsa(cache) => b.kv_truncate(cache, self.len + n),
            }
        }
        if let Some(p) = &mut self.ngram {
            p.commit(b, c, n);
        }
        for i in 0..n {
            self.remember(self.pending[i], c);
        }
        self.len += n;
        self.pending.clear();
    }

    /// Adds a token to the hash's context.
    pub(crate) fn remember(&mut self, token: u32, c: &Config) {
        let context = c.ngram.as_ref().map_or(0, |p| p.ngram_size - 1);
        if context == 0 {
            return;
        }
        if self.tail.len() == context {
            self.tail.remove(0);
        }
        self.tail.push(token);
    }

    /// Back to the empty sequence, keeping the memory.
    pub fn clear(&mut self, b: &B, c: &Config) {
        for l in &mut self.layers {
            match l {
                LayerState::Gdn(g) => g.clear(b, c),
                LayerState::Qsa(cache) => b.kv_truncate(cache, 0),
            }
        }
        if let (Some(st), Some(p)) = (&mut self.ngram, &c.ngram) {
            st.clear(b, c, p);
        }
        self.tail.clear();
        self.pending.clear();
        self.len = 0;
    }
}

/// The states of one layer of the trunk.
pub(crate) struct Layer<'a, B: Backend> {
    pub seqs: &'a mut [Sequence<B>],
    pub index: usize,
}

impl<B: Backend> States<B> for Layer<'_, B> {
    fn of(&mut self, seq: usize) -> &mut LayerState<B> {
        &mut self.seqs[seq].layers[self.index]
    }

    fn all<'a>(&'a mut self) -> impl Iterator<Item = &'a mut LayerState<B>>
    where
        B: 'a,
    {
        self.seqs.iter_mut().map(|s| &mut s.layers[self.index])
    }
}

/// The states of the MTP block.
pub(crate) struct MtpLayer<'a, B: Backend>(pub &'a mut [MtpSequence<B>]);

impl<B: Backend> States<B> for MtpLayer<'_, B> {
    fn of(&mut self, seq: usize) -> &mut LayerState<B> {
        &mut self.0[seq].state
    }

    fn all<'a>(&'a mut self) -> impl Iterator<Item = &'a mut LayerState<B>>
    where
        B: 'a,
    {
        self.0.iter_mut().map(|s| &mut s.state)
    }
}

/// One sequence on the MTP block: only its attention cache.
pub struct MtpSequence<B: Backend> {
    pub(crate) state: LayerState<B>,
}

impl<B: Backend> MtpSequence<B> {
    pub fn new(b: &B, c: &Config, kind: KvKind, capacity: usize, dense: bool) -> Result<Self, OpError> {
        let geometry = strata_ops::backend::QsaGeometry { dense, ..c.qsa };
        Ok(MtpSequence { state: LayerState::Qsa(b.kv_cache(geometry, kind, capacity)?) })
    }

    pub(crate) fn cache(&self) -> &B::KvCache {
        match &self.state {
            LayerState::Qsa(cache) => cache,
            LayerState::Gdn(_) => unreachable!("the MTP block is an attention layer"),
        }
    }

    /// Rows in the cache.
    pub fn len(&self, b: &B) -> usize {
        b.kv_len(self.cache())
    }

    /// Drops the rows from `len` on.
    pub fn truncate(&mut self, b: &B, len: usize) {
        b.kv_truncate(self.state.cache(), len);
    }
}
