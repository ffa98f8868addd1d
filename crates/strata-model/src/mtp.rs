//! The multi-token-prediction block: one decoder layer that continues the trunk's residual with the next token.

use crate::block::Block;
use crate::config::{Config, LayerKind};
use crate::error::{BindError, ForwardError};
use crate::hyper::Hyper;
use crate::model::Model;
use crate::moe::Ahead;
use crate::scratch::Scratch;
use crate::segment::{Part, Segment, contain, lay_out, total, verdict};
use crate::sequence::{MtpLayer, MtpSequence};
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
    /// [`Scratch::mtp_input`]) with `next[i]`, the token after it, and is appended to the cache of its segment's sequence (the
    /// block's rows are always committed); its own wide residual is left in [`Scratch::residual`].
    ///
    /// # Errors
    /// As [`Model::forward`].
    ///
    /// # Panics
    /// As [`Model::forward`].
    pub fn mtp_forward(
        &self,
        b: &B,
        seqs: &mut [MtpSequence<B>],
        segments: &[Segment],
        next: &[u32],
        s: &mut Scratch<B>,
    ) -> Result<(), ForwardError> {
        let Some(m) = &self.mtp else { return Ok(()) };
        let mut parts = std::mem::take(&mut s.parts);
        let capacity = s.limits.capacity;
        let r = lay_out(&mut parts, &s.limits, self.config(), segments, next, 1, |i| (seqs[i].len(b), capacity))
            .and_then(|()| self.mtp_rows(b, m, seqs, &mut parts, next, s));
        s.parts = parts;
        r
    }

    fn mtp_rows(
        &self,
        b: &B,
        m: &Mtp<B>,
        seqs: &mut [MtpSequence<B>],
        parts: &mut [Part],
        next: &[u32],
        s: &mut Scratch<B>,
    ) -> Result<(), ForwardError> {
        let (c, n) = (self.config(), total(parts));
        s.rope.grow(parts.iter().map(|p| p.first + p.rows.len()).max().unwrap_or(0));
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
        m.block.forward(b, c, s, &mut MtpLayer(seqs), parts, c.layers.len(), &mut None, &ahead)?;
        let bad = contain(b, &mut s.r, c.wide(), parts);
        verdict(parts, bad.then(|| "the MTP block".into()))
    }

    /// Logits of `rows` of the residual, by the MTP block's mixer, into [`Scratch::logits`].
    ///
    /// # Errors
    /// As [`Model::head`].
    pub fn mtp_head(&self, b: &B, s: &mut Scratch<B>, rows: impl ExactSizeIterator<Item = usize>) -> Result<(), ForwardError> {
        match &self.mtp {
            Some(m) => self.head_with(b, s, rows, &m.mixer, m.head.as_ref().unwrap_or(&self.output)),
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
