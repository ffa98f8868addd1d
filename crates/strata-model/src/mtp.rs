//! The multi-token-prediction block: one decoder layer that continues the trunk's residual with the next token.

use crate::block::Block;
use crate::config::{Config, LayerKind};
use crate::error::{BindError, ForwardError};
use crate::hyper::Hyper;
use crate::model::Model;
use crate::moe::Ahead;
use crate::scratch::{Scratch, check_call, check_ids};
use crate::sequence::MtpSequence;
use crate::weights::Binder;
use strata_ops::backend::Backend;

/// Weights of the block.
pub struct Mtp<B: Backend> {
    embedding_norm: B::Buf,
    hidden_norm: B::Buf,
    /// `[hidden, 2 * hidden]`: embedding part first.
    pub(crate) project: B::Matrix,
    pub(crate) block: Block<B>,
    pub(crate) mixer: Hyper<B>,
    /// Its own embedding and head, where the file has them.
    table: Option<B::Table>,
    pub(crate) head: Option<B::Matrix>,
}

impl<B: Backend> Mtp<B> {
    /// Binds block `block` of a file. `own` takes the file's `token_embd` and `output` as the block's own (a draft-only
    /// file that carries copies).
    pub fn bind(w: &Binder<'_, B>, c: &Config, block: usize, dense: bool, own: bool) -> Result<Self, BindError> {
        let name = |part: &str| format!("blk.{block}.nextn.{part}.weight");
        let mixer_prefix = format!("blk.{block}.nextn.hc_head");
        // some draft-only files name the block's mixer as a trunk's
        let mixer_prefix = if own && !w.has(&format!("{mixer_prefix}_norm.weight")) { "output_hc" } else { &mixer_prefix };
        let table_name = name("embed_tokens");
        let table_name = if own { w.either([&table_name, "token_embd.weight"]) } else { &table_name };
        let head_name = name("shared_head_head");
        let head_name = if own { w.either([&head_name, "output.weight"]) } else { &head_name };
        Ok(Mtp {
            embedding_norm: w.vector(&name("enorm"), c.hidden)?,
            hidden_norm: w.vector(&name("hnorm"), c.wide())?,
            project: w.matrix(&name("eh_proj"), c.hidden, 2 * c.hidden)?,
            block: Block::bind(w, c, block, LayerKind::Qsa, dense)?,
            mixer: Hyper::bind(w, c, mixer_prefix, false)?,
            table: if w.has(table_name) { Some(w.table(table_name, c.hidden, c.vocab as u64)?) } else { None },
            head: if w.has(head_name) { Some(w.matrix(head_name, c.vocab, c.hidden)?) } else { None },
        })
    }
}

impl<B: Backend> Model<B> {
    /// Runs rows of the MTP block. Row i continues the residual in row i of the scratch's MTP input (see
    /// [`Scratch::mtp_input`]) with `next[i]`, the token after it, and is appended to the block's cache; its own wide
    /// residual is left in [`Scratch::residual`].
    pub fn mtp_forward(&self, b: &B, seq: &mut MtpSequence<B>, s: &mut Scratch<B>, next: &[u32]) -> Result<(), ForwardError> {
        let c = self.config();
        let (Some(m), n) = (&self.mtp, next.len()) else {
            return Ok(());
        };
        let first = seq.len(b);
        check_call(&s.limits, first, n)?;
        check_ids(c, first + 1, next)?;
        s.rope.grow(first + n);
        for (id, t) in s.row_ids.iter_mut().zip(next) {
            *id = u64::from(*t);
        }
        b.gather(m.table.as_ref().unwrap_or(&self.embedding), &s.row_ids[..n], &mut s.embedding);
        if let Some(x) = &mut s.mtp {
            b.rms_norm(&s.embedding, n, c.hidden, &m.embedding_norm, c.eps, &mut x.embedding_normed);
            b.rms_norm(&x.wide, n, c.wide(), &m.hidden_norm, c.eps, &mut x.wide_normed);
            b.join_streams(&x.embedding_normed, &x.wide_normed, n, c.streams, c.hidden, &mut x.joined);
            b.prepare(&x.joined, n * c.streams, &mut x.joined_acts);
            b.matmul(&x.joined_acts, n * c.streams, &mut [(&m.project, &mut s.r)]);
        }
        let ahead = Ahead { watch: self.watch.as_deref(), next: None };
        m.block.forward(b, c, s, &mut seq.state, c.layers.len(), first, n, true, &mut None, &ahead)?;
        if !b.all_finite(&s.r, n * c.wide()) {
            return Err(ForwardError::NotFinite { place: "the MTP block".into() });
        }
        Ok(())
    }

    /// Logits of `n` rows of the residual from `row` on, by the MTP block's mixer, into [`Scratch::logits`].
    pub fn mtp_head(&self, b: &B, s: &mut Scratch<B>, row: usize, n: usize) -> Result<(), ForwardError> {
        match &self.mtp {
            Some(m) => self.head_with(b, s, row, n, &m.mixer, m.head.as_ref().unwrap_or(&self.output)),
            None => Ok(()),
        }
    }
}

impl<B: Backend> Scratch<B> {
    /// Copies `n` rows of `from`, starting at `from_row`, into the MTP input, starting at `row`.
    pub fn mtp_input(&mut self, b: &B, c: &Config, from: &B::Buf, from_row: usize, row: usize, n: usize) {
        if let Some(x) = &mut self.mtp {
            b.copy(from, from_row * c.wide(), &mut x.wide, row * c.wide(), n * c.wide());
        }
    }

    /// Copies `n` rows of the last residual into the MTP input, starting at `row`.
    pub fn mtp_input_from_residual(&mut self, b: &B, c: &Config, from_row: usize, row: usize, n: usize) {
        if let Some(x) = &mut self.mtp {
            b.copy(&self.r, from_row * c.wide(), &mut x.wide, row * c.wide(), n * c.wide());
        }
    }
}
