//! The whole model: binding, and the forward pass over the trunk.

use crate::block::Block;
use crate::config::Config;
use crate::error::{BindError, ForwardError};
use crate::hyper::Hyper;
use crate::moe::Ahead;
use crate::mtp::Mtp;
use crate::ngram::{Ngram, NgramHash};
use crate::observer::Observer;
use crate::scratch::Scratch;
use crate::segment::{Part, Segment, contain, lay_out, positions, total, verdict};
use crate::sequence::{Layer, Sequence};
use crate::storage::{ExpertWatch, Mapped, Storage};
use crate::weights::{Binder, WeightMode};
use std::sync::Arc;
use strata_gguf::Gguf;
use strata_ops::backend::Backend;

/// Choices made when a model is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOptions {
    pub weights: WeightMode,
    /// Bind the MTP block, where there is one.
    pub mtp: bool,
    /// Attend to every cell in the MTP block instead of selecting as the trunk does.
    pub mtp_dense: bool,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions { weights: WeightMode::AsStored, mtp: true, mtp_dense: false }
    }
}

/// A bound model.
pub struct Model<B: Backend> {
    config: Config,
    pub(crate) embedding: B::Table,
    pub(crate) ngram: Option<Ngram<B>>,
    pub(crate) blocks: Vec<Block<B>>,
    pub(crate) final_mixer: Hyper<B>,
    pub(crate) output: B::Matrix,
    pub(crate) mtp: Option<Mtp<B>>,
    pub(crate) watch: Option<Arc<dyn ExpertWatch>>,
}

impl<B: Backend> Model<B> {
    /// Binds the trunk in `gguf`, and the MTP block from `mtp` or, without it, from `gguf` if that holds one. Every weight
    /// stays where its file is mapped.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, or holds a scale that is not finite.
    pub fn bind(b: &B, gguf: &Gguf, mtp: Option<&Gguf>, options: ModelOptions) -> Result<Model<B>, BindError> {
        Model::bind_in(b, gguf, mtp, options, &Mapped)
    }

    /// [`Model::bind`] with the weights where `storage` puts them.
    ///
    /// # Errors
    /// As [`Model::bind`], or the storage cannot read what it must.
    pub fn bind_in(b: &B, gguf: &Gguf, mtp: Option<&Gguf>, options: ModelOptions, storage: &dyn Storage) -> Result<Model<B>, BindError> {
        let vocab = gguf.tensor("token_embd.weight").and_then(|t| t.dims.get(1).copied()).unwrap_or(1) as usize;
        let config = Config::from_gguf(gguf, vocab)?;
        let c = &config;
        let w = Binder::new(b, gguf, options.weights, storage);
        let embedding = w.table("token_embd.weight", c.hidden, 1)?;
        let tied = !w.has("output.weight");
        let output = w.matrix(if tied { "token_embd.weight" } else { "output.weight" }, c.vocab, c.hidden)?;
        let blocks = (0..c.layers.len()).map(|i| Block::bind(&w, c, i, c.layers[i], false)).collect::<Result<Vec<_>, _>>()?;
        let ngram = c.ngram.as_ref().map(|p| Ngram::bind(&w, c, p)).transpose()?;
        let final_mixer = Hyper::bind(&w, c, "output_hc", false)?;
        let index = c.layers.len();
        let prefix = format!("blk.{index}.");
        let own = match (options.mtp, mtp) {
            (true, None) if c.has_mtp => Some(Mtp::bind(&w, c, index, options.mtp_dense, false)?),
            _ => None,
        };
        w.finish(|name| c.has_mtp && name.starts_with(&prefix))?;
        let mtp = match (options.mtp, mtp) {
            (true, Some(g)) => Some(bind_mtp_file(b, c, g, options, storage)?),
            _ => own,
        };
        Ok(Model { embedding, ngram, blocks, final_mixer, output, mtp, config, watch: storage.watch() })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// True if the MTP block is bound.
    pub fn has_mtp(&self) -> bool {
        self.mtp.is_some()
    }

    /// The n-gram hash, where the model has the module.
    pub fn hash(&self) -> Option<&NgramHash> {
        self.ngram.as_ref().map(|n| &n.hash)
    }

    pub(crate) fn head_matrices(&self) -> Vec<&B::Matrix> {
        std::iter::once(&self.output).chain(self.mtp.as_ref().and_then(|m| m.head.as_ref())).collect()
    }

    /// Runs the tokens of several sequences, each after the committed ones of its own: `tokens` holds those of the first segment,
    /// then those of the second and so on. Their wide residuals are left in [`Scratch::residual`], in the same order. A
    /// sequence's rows have the same bits whatever runs beside them.
    ///
    /// A committed segment moves its sequence past its tokens; the others stay pending until [`Sequence::commit`], and a second
    /// call for such a sequence before that is an error of the caller.
    ///
    /// # Errors
    /// A call that does not fit, after which nothing has changed; a weight that cannot be read, after which no sequence of the call
    /// is of use; or [`ForwardError::NotFinite`], which names the sequences that are of no use, while the others have run.
    ///
    /// # Panics
    /// If a sequence has rows pending already or more than its window are run without commit, if the segments' rows are not those
    /// of `tokens`, a segment is empty or a sequence has two.
    pub fn forward(
        &self,
        b: &B,
        seqs: &mut [Sequence<B>],
        segments: &[Segment],
        tokens: &[u32],
        s: &mut Scratch<B>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<(), ForwardError> {
        for g in segments {
            let seq = &seqs[g.seq];
            assert!(seq.pending.is_empty(), "rows are pending");
            assert!(g.commit || g.rows <= seq.window, "{} rows without commit, the window is {}", g.rows, seq.window);
        }
        let mut parts = std::mem::take(&mut s.parts);
        let r = lay_out(&mut parts, &s.limits, &self.config, segments, tokens, 0, |i| (seqs[i].len, seqs[i].capacity))
            .and_then(|()| self.rows(b, seqs, &mut parts, tokens, s, observer));
        s.parts = parts;
        r
    }

    fn rows(
        &self,
        b: &B,
        seqs: &mut [Sequence<B>],
        parts: &mut [Part],
        tokens: &[u32],
        s: &mut Scratch<B>,
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<(), ForwardError> {
        let (c, n) = (&self.config, total(parts));
        s.rope.grow(parts.iter().map(|p| p.first + p.rows.len()).max().unwrap_or(0));
        for (id, t) in s.row_ids.iter_mut().zip(tokens) {
            *id = u64::from(*t);
        }
        b.gather(&self.embedding, &s.row_ids[..n], &mut s.embedding);
        b.spread(&s.embedding, n, c.streams, c.hidden, &mut s.r);
        if let (Some(g), Some(x), Some(p)) = (&self.ngram, &mut s.ngram, &c.ngram) {
            let heads = p.heads();
            for part in parts.iter() {
                let rows = &mut x.rows[part.rows.start * heads..part.rows.end * heads];
                ngram_rows(&g.hash, &seqs[part.seq].tail, &tokens[part.rows.clone()], heads, rows);
            }
            g.request(&x.rows[..n * heads]);
            if let Some(o) = &mut observer {
                positions(parts).for_each(|(row, position)| o.ngram_rows(position, &x.rows[row * heads..(row + 1) * heads]));
            }
        }
        let mut bad = None;
        for (i, block) in self.blocks.iter().enumerate() {
            if let (Some(g), Some(p)) = (&self.ngram, &c.ngram)
                && p.layer == i
            {
                g.forward(b, c, p, s, seqs, parts)?;
            }
            let ahead = Ahead { watch: self.watch.as_deref(), next: self.blocks.get(i + 1).map(|x| &x.moe.router) };
            block.forward(b, c, s, &mut Layer { seqs, index: i }, parts, i, &mut observer, &ahead)?;
            if let Some(o) = &mut observer {
                let mut wide = vec![0.0; n * c.wide()];
                b.read(&s.r, 0, &mut wide);
                positions(parts).zip(wide.chunks_exact(c.wide())).for_each(|((_, position), r)| o.residual(i, position, r));
            }
            if contain(b, &mut s.r, c.wide(), parts) {
                bad.get_or_insert_with(|| format!("the residual after layer {i}"));
            }
        }
        for p in parts.iter() {
            let (seq, tokens) = (&mut seqs[p.seq], &tokens[p.rows.clone()]);
            if p.commit {
                for t in tokens {
                    seq.remember(*t, c);
                }
                seq.len += tokens.len();
            } else {
                seq.pending.extend_from_slice(tokens);
            }
        }
        verdict(parts, bad)
    }

    /// Logits of `rows` of the residual, in that order, into [`Scratch::logits`].
    ///
    /// # Errors
    /// More rows than the working memory was made for, or [`ForwardError::NotFinite`], which names the rows; the others are good.
    pub fn head(&self, b: &B, s: &mut Scratch<B>, rows: impl ExactSizeIterator<Item = usize>) -> Result<(), ForwardError> {
        self.head_with(b, s, rows, &self.final_mixer, &self.output)
    }

    /// The final hidden states, the vectors before the head, of `rows` of the residual, in that order, into
    /// [`Scratch::final_hidden`].
    ///
    /// # Errors
    /// As [`Model::head`].
    pub fn final_hidden(&self, b: &B, s: &mut Scratch<B>, rows: impl ExactSizeIterator<Item = usize>) -> Result<(), ForwardError> {
        let (hidden, n) = (self.config.hidden, rows.len());
        self.mix(b, s, rows, &self.final_mixer)?;
        if !b.all_finite(&s.head_hyper.y, 0..n * hidden) {
            let which = (0..n).filter(|i| !b.all_finite(&s.head_hyper.y, i * hidden..(i + 1) * hidden)).collect();
            return Err(ForwardError::NotFinite { place: "the final hidden state".into(), which });
        }
        Ok(())
    }

    /// Reads `rows` of the residual by a final mixer.
    fn mix(&self, b: &B, s: &mut Scratch<B>, rows: impl ExactSizeIterator<Item = usize>, mixer: &Hyper<B>) -> Result<(), ForwardError> {
        let (c, n) = (&self.config, rows.len());
        if n > s.limits.head_rows {
            return Err(ForwardError::TooManyRows { found: n, limit: s.limits.head_rows });
        }
        for (to, row) in rows.enumerate() {
            b.copy(&s.r, row * c.wide(), &mut s.head_r, to * c.wide(), c.wide());
        }
        mixer.read(b, c, &s.head_r, n, &mut s.head_hyper);
        Ok(())
    }

    pub(crate) fn head_with(
        &self,
        b: &B,
        s: &mut Scratch<B>,
        rows: impl ExactSizeIterator<Item = usize>,
        mixer: &Hyper<B>,
        output: &B::Matrix,
    ) -> Result<(), ForwardError> {
        let (c, n) = (&self.config, rows.len());
        self.mix(b, s, rows, mixer)?;
        b.prepare(&s.head_hyper.y, n, &mut s.head_acts);
        b.matmul(&s.head_acts, n, &mut [(output, &mut s.logits)]);
        if !b.all_finite(&s.logits, 0..n * c.vocab) {
            let which = (0..n).filter(|i| !b.all_finite(&s.logits, i * c.vocab..(i + 1) * c.vocab)).collect();
            return Err(ForwardError::NotFinite { place: "the logits".into(), which });
        }
        Ok(())
    }
}

/// Table rows of every token, given the committed ones before them.
fn ngram_rows(hash: &NgramHash, tail: &[u32], tokens: &[u32], heads: usize, rows: &mut [u64]) {
    // the hash looks at few tokens: a window on the stack holds them
    const MAX: usize = 16;
    let context = hash.context();
    for (i, rows) in rows.chunks_exact_mut(heads).take(tokens.len()).enumerate() {
        let mut window = [0u32; MAX];
        let before = context.min(tail.len() + i);
        for s in 0..=before {
            // s tokens before the current one
            window[before - s] = if s <= i { tokens[i - s] } else { tail[tail.len() + i - s] };
        }
        hash.rows(&window[..=before], rows);
    }
}

/// Binds the MTP block of a file of its own.
fn bind_mtp_file<B: Backend>(
    b: &B,
    trunk: &Config,
    gguf: &Gguf,
    options: ModelOptions,
    storage: &dyn Storage,
) -> Result<Mtp<B>, BindError> {
    let c = Config::from_gguf(gguf, trunk.vocab)?;
    if !c.has_mtp {
        return Err(BindError::NoMtp { file: gguf.path().display().to_string() });
    }
    let differs = |key: &str, expected: String, found: String| BindError::Config {
        file: gguf.path().display().to_string(),
        key: format!("qwen4exp.{key}"),
        expected: format!("{expected}, as in the trunk file"),
        found,
    };
    if c.layers.len() != trunk.layers.len() {
        return Err(differs("block_count", (trunk.layers.len() + 1).to_string(), (c.layers.len() + 1).to_string()));
    }
    if (c.hidden, c.streams) != (trunk.hidden, trunk.streams) {
        return Err(differs("embedding_length", format!("{} x {}", trunk.hidden, trunk.streams), format!("{} x {}", c.hidden, c.streams)));
    }
    if (c.qsa, c.rope_dims) != (trunk.qsa, trunk.rope_dims) {
        return Err(differs("attention", format!("{:?}", trunk.qsa), format!("{:?}", c.qsa)));
    }
    if (c.low_rank, c.experts_used, c.expert_width, c.shared_width, c.experts)
        != (trunk.low_rank, trunk.experts_used, trunk.expert_width, trunk.shared_width, trunk.experts)
    {
        return Err(differs(
            "expert_count",
            format!("{} experts of {}", trunk.experts, trunk.expert_width),
            format!("{} of {}", c.experts, c.expert_width),
        ));
    }
    let w = Binder::new(b, gguf, options.weights, storage);
    let index = trunk.layers.len();
    let mtp = Mtp::bind(&w, trunk, index, options.mtp_dense, true)?;
    // a combined file used beside another trunk: its trunk tensors are of no interest
    let block = format!("blk.{index}.");
    w.finish(|name| !name.starts_with(&block))?;
    Ok(mtp)
}
