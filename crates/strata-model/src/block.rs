//! One decoder layer: token mixer and experts, each between a read and a write of the residual.

use crate::config::{Config, LayerKind};
use crate::error::BindError;
use crate::gdn::{Gdn, GdnState};
use crate::hyper::Hyper;
use crate::moe::{Ahead, Moe};
use crate::observer::Observer;
use crate::qsa::Qsa;
use crate::scratch::Scratch;
use crate::segment::{Part, States, total};
use crate::storage::StorageError;
use crate::weights::Binder;
use strata_ops::backend::Backend;

/// The token mixer of a layer.
pub enum Mixer<B: Backend> {
    Gdn(Gdn<B>),
    Qsa(Qsa<B>),
}

/// Weights of one decoder layer.
pub struct Block<B: Backend> {
    pub(crate) attn_hyper: Hyper<B>,
    pub(crate) mixer: Mixer<B>,
    pub(crate) ffn_hyper: Hyper<B>,
    pub(crate) moe: Moe<B>,
}

/// One sequence's state of one layer.
pub enum LayerState<B: Backend> {
    Gdn(GdnState<B>),
    Qsa(B::KvCache),
}

impl<B: Backend> LayerState<B> {
    pub(crate) fn gdn(&mut self) -> &mut GdnState<B> {
        match self {
            LayerState::Gdn(st) => st,
            LayerState::Qsa(_) => unreachable!("{STATES_MATCH}"),
        }
    }

    pub(crate) fn cache(&mut self) -> &mut B::KvCache {
        match self {
            LayerState::Qsa(cache) => cache,
            LayerState::Gdn(_) => unreachable!("{STATES_MATCH}"),
        }
    }
}

const STATES_MATCH: &str = "a sequence's states are made from the same list of layer kinds as the blocks";

impl<B: Backend> Block<B> {
    pub fn bind(w: &Binder<'_, B>, c: &Config, block: usize, kind: LayerKind, dense: bool) -> Result<Self, BindError> {
        Ok(Block {
            attn_hyper: Hyper::bind(w, c, &format!("blk.{block}.hc_attn"), true)?,
            mixer: match kind {
                LayerKind::Gdn => Mixer::Gdn(Gdn::bind(w, c, block)?),
                LayerKind::Qsa => Mixer::Qsa(Qsa::bind(w, c, block, dense)?),
            },
            ffn_hyper: Hyper::bind(w, c, &format!("blk.{block}.hc_ffn"), true)?,
            moe: Moe::bind(w, c, block)?,
        })
    }

    /// Carries the rows of `parts` in `s.r` through the layer.
    ///
    /// # Errors
    /// Weights that are used for the first time and are not finite.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn forward(
        &self,
        b: &B,
        c: &Config,
        s: &mut Scratch<B>,
        states: &mut impl States<B>,
        parts: &[Part],
        layer: usize,
        observer: &mut Option<&mut dyn Observer>,
        ahead: &Ahead<'_, B>,
    ) -> Result<(), StorageError> {
        let n = total(parts);
        self.attn_hyper.read(b, c, &s.r, n, &mut s.hyper);
        match &self.mixer {
            Mixer::Gdn(g) => g.forward(b, c, s, states, parts),
            Mixer::Qsa(q) => q.forward(b, c, s, states, parts, layer, observer),
        }
        b.hyper_write(&mut s.r, &s.hyper.inject, &s.block_out, n, c.streams, c.hidden);
        self.ffn_hyper.read(b, c, &s.r, n, &mut s.hyper);
        self.moe.forward(b, c, s, parts, layer, observer, ahead)?;
        b.hyper_write(&mut s.r, &s.hyper.inject, &s.block_out, n, c.streams, c.hidden);
        Ok(())
    }
}
