//! A sequence's states as plain values, and back: what recurs (convolutions, gated DeltaNet, the incomplete index block), and the
//! cells that only grow, block by block. A sequence that takes both goes on with the bits of the one that gave them.

use crate::block::LayerState;
use crate::config::Config;
use crate::gdn::GdnState;
use crate::ngram::NgramState;
use crate::sequence::{MtpSequence, Sequence};
use std::ops::Range;
use strata_ops::backend::{Backend, QsaGeometry};

/// Values of an attention layer's open block.
fn open_len(g: &QsaGeometry) -> usize {
    g.block * g.index_dim
}

impl<B: Backend> Sequence<B> {
    /// Values of [`Sequence::save_states`].
    pub fn states_len(&self, c: &Config) -> usize {
        let layers = self.layers.iter().map(|l| match l {
            LayerState::Gdn(_) => GdnState::<B>::parts(c).iter().sum(),
            LayerState::Qsa(_) => open_len(&c.qsa),
        });
        layers.sum::<usize>() + c.ngram.as_ref().map_or(0, |p| NgramState::<B>::conv_len(c, p))
    }

    /// Copies the states that recur, at the committed length.
    ///
    /// # Panics
    /// If rows are pending, or `out` is not [`Sequence::states_len`] long.
    pub fn save_states(&self, b: &B, c: &Config, out: &mut [f32]) {
        assert!(self.pending.is_empty() && out.len() == self.states_len(c));
        let mut out = out;
        let mut next = |n: usize| {
            let (part, rest) = std::mem::take(&mut out).split_at_mut(n);
            out = rest;
            part
        };
        for l in &self.layers {
            match l {
                LayerState::Gdn(g) => {
                    for (buf, n) in g.buffers().into_iter().zip(GdnState::<B>::parts(c)) {
                        b.read(buf, 0, next(n));
                    }
                }
                LayerState::Qsa(cache) => b.kv_open(cache, self.len, next(open_len(&c.qsa))),
            }
        }
        if let (Some(st), Some(p)) = (&self.ngram, &c.ngram) {
            b.read(st.conv(), 0, next(NgramState::<B>::conv_len(c, p)));
        }
    }

    /// Bytes of a block of cells, of all layers.
    pub fn block_bytes(&self, b: &B) -> usize {
        self.caches().map(|cache| b.kv_block_bytes(cache)).sum()
    }

    /// Copies blocks of cells, layer by layer: [`Backend::kv_save`] of each.
    ///
    /// # Panics
    /// If `out` has another size or a block no cell.
    pub fn save_blocks(&self, b: &B, blocks: Range<usize>, out: &mut [u8]) {
        let mut out = out;
        for cache in self.caches() {
            let (part, rest) = out.split_at_mut(blocks.len() * b.kv_block_bytes(cache));
            b.kv_save(cache, blocks.clone(), part);
            out = rest;
        }
        assert!(out.is_empty(), "{} bytes too many", out.len());
    }

    /// Puts saved blocks back from block `first` on; [`Sequence::resume`] makes them the sequence's.
    ///
    /// # Panics
    /// If these are not whole blocks, or there is no room for them.
    pub fn load_blocks(&mut self, b: &B, first: usize, saved: &[u8]) {
        let blocks = saved.len().checked_div(self.block_bytes(b)).unwrap_or(0);
        let mut saved = saved;
        for l in &mut self.layers {
            if let LayerState::Qsa(cache) = l {
                let (part, rest) = saved.split_at(blocks * b.kv_block_bytes(cache));
                b.kv_load(cache, first, part);
                saved = rest;
            }
        }
        assert!(saved.is_empty(), "{} bytes too many", saved.len());
    }

    /// Becomes the sequence of `tokens`, whose cells it holds (its own, or loaded) and whose states are `states`.
    ///
    /// # Panics
    /// If `states` is not [`Sequence::states_len`] long or `tokens` are too many.
    pub fn resume(&mut self, b: &B, c: &Config, tokens: &[u32], states: &[f32]) {
        assert!(states.len() == self.states_len(c) && tokens.len() <= self.capacity);
        let mut states = states;
        let mut next = |n: usize| {
            let (part, rest) = states.split_at(n);
            states = rest;
            part
        };
        for l in &mut self.layers {
            match l {
                LayerState::Gdn(g) => {
                    for (buf, n) in g.buffers_mut().into_iter().zip(GdnState::<B>::parts(c)) {
                        b.write(buf, 0, next(n));
                    }
                }
                LayerState::Qsa(cache) => b.kv_resume(cache, tokens.len(), next(open_len(&c.qsa))),
            }
        }
        if let (Some(st), Some(p)) = (&mut self.ngram, &c.ngram) {
            b.write(st.conv_mut(), 0, next(NgramState::<B>::conv_len(c, p)));
        }
        self.tail.clear();
        let context = c.ngram.as_ref().map_or(0, |p| p.ngram_size - 1);
        self.tail.extend_from_slice(&tokens[tokens.len().saturating_sub(context)..]);
        self.pending.clear();
        self.len = tokens.len();
    }

    fn caches(&self) -> impl Iterator<Item = &B::KvCache> {
        self.layers.iter().filter_map(|l| match l {
            LayerState::Qsa(cache) => Some(cache),
            LayerState::Gdn(_) => None,
        })
    }
}

impl<B: Backend> MtpSequence<B> {
    /// Values of [`MtpSequence::save_open`].
    pub fn open_len(c: &Config) -> usize {
        open_len(&c.qsa)
    }

    /// Copies what goes on from the first `len` rows: the present ones, or all but the last.
    pub fn save_open(&self, b: &B, len: usize, out: &mut [f32]) {
        b.kv_open(self.cache(), len, out);
    }

    /// Bytes of a block of rows.
    pub fn block_bytes(&self, b: &B) -> usize {
        b.kv_block_bytes(self.cache())
    }

    /// As [`Sequence::save_blocks`].
    pub fn save_blocks(&self, b: &B, blocks: Range<usize>, out: &mut [u8]) {
        b.kv_save(self.cache(), blocks, out);
    }

    /// As [`Sequence::load_blocks`].
    pub fn load_blocks(&mut self, b: &B, first: usize, saved: &[u8]) {
        b.kv_load(self.state.cache(), first, saved);
    }

    /// Becomes the sequence of the first `len` rows it holds.
    pub fn resume(&mut self, b: &B, len: usize, open: &[f32]) {
        b.kv_resume(self.state.cache(), len, open);
    }
}
