//! Working memory of forward passes: made once, used for every call.

use crate::block::{Block, Mixer};
use crate::gdn::GdnWork;
use crate::hyper::{Hyper, HyperScratch};
use crate::model::Model;
use crate::ngram::NgramScratch;
use crate::segment::Part;
use strata_ops::backend::{Backend, OpError, Routes};
use strata_ops::rope::RopeTable;

/// What working memory must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one forward call.
    pub rows: usize,
    /// Rows whose logits one call of the head computes.
    pub head_rows: usize,
    /// Tokens of a sequence.
    pub capacity: usize,
}

/// The buffers between the ops of a forward pass. Fields are named for what they hold; all are `[rows, ...]`.
pub struct Scratch<B: Backend> {
    pub limits: Limits,
    /// Where the rows of the call's segments lie.
    pub(crate) parts: Vec<Part>,
    pub(crate) rope: RopeTable,
    /// The wide residual, `[rows, streams, hidden]`.
    pub(crate) r: B::Buf,
    pub(crate) embedding: B::Buf,
    pub(crate) row_ids: Vec<u64>,
    pub(crate) hyper: HyperScratch<B>,
    pub(crate) hidden_acts: B::Acts,
    /// Output of a mixer or of the experts, `[rows, hidden]`.
    pub(crate) block_out: B::Buf,
    pub(crate) gdn_work: GdnWork<B>,
    pub(crate) gdn_z: B::Buf,
    pub(crate) gdn_alpha: B::Buf,
    pub(crate) gdn_beta: B::Buf,
    pub(crate) gdn_out: B::Buf,
    pub(crate) inner_acts: B::Acts,
    pub(crate) attn_qg: B::Buf,
    pub(crate) attn_q_raw: B::Buf,
    pub(crate) attn_q: B::Buf,
    pub(crate) attn_gate: B::Buf,
    pub(crate) attn_k: B::Buf,
    pub(crate) attn_k_normed: B::Buf,
    pub(crate) attn_v: B::Buf,
    pub(crate) index_q: B::Buf,
    pub(crate) index_q_normed: B::Buf,
    pub(crate) index_k: B::Buf,
    pub(crate) attn_scratch: B::AttnScratch,
    pub(crate) attn_out: B::Buf,
    pub(crate) attn_acts: B::Acts,
    pub(crate) router_logits: B::Buf,
    pub(crate) routes: Routes,
    /// The experts that the next layer is guessed to take.
    pub(crate) guess: Routes,
    pub(crate) shared_router: B::Buf,
    pub(crate) shared_gate: B::Buf,
    pub(crate) shared_up: B::Buf,
    pub(crate) shared_hidden: B::Buf,
    pub(crate) shared_acts: B::Acts,
    pub(crate) shared_out: B::Buf,
    pub(crate) expert_scratch: B::ExpertScratch,
    pub(crate) ngram: Option<NgramScratch<B>>,
    pub(crate) head_r: B::Buf,
    pub(crate) head_hyper: HyperScratch<B>,
    pub(crate) head_acts: B::Acts,
    /// `[head_rows, vocab]`.
    pub(crate) logits: B::Buf,
    pub(crate) mtp: Option<MtpScratch<B>>,
}

/// Working memory of the MTP block's input.
pub struct MtpScratch<B: Backend> {
    /// The wide residual that each row continues, `[rows, streams, hidden]`.
    pub(crate) wide: B::Buf,
    pub(crate) wide_normed: B::Buf,
    pub(crate) embedding_normed: B::Buf,
    /// `[rows, streams, 2 * hidden]`.
    pub(crate) joined: B::Buf,
    pub(crate) joined_acts: B::Acts,
}

impl<B: Backend> Scratch<B> {
    pub fn new(b: &B, model: &Model<B>, limits: Limits) -> Result<Self, OpError> {
        let c = model.config();
        let rows = limits.rows;
        let blocks: Vec<&Block<B>> = model.blocks.iter().chain(model.mtp.as_ref().map(|m| &m.block)).collect();
        let reads: Vec<&Hyper<B>> = blocks.iter().flat_map(|x| [&x.attn_hyper, &x.ffn_hyper]).collect();
        let heads: Vec<&Hyper<B>> = std::iter::once(&model.final_mixer).chain(model.mtp.as_ref().map(|m| &m.mixer)).collect();
        let mut hidden: Vec<&B::Matrix> = Vec::new();
        let (mut inner, mut attn, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for x in &blocks {
            match &x.mixer {
                Mixer::Gdn(g) => {
                    hidden.extend([&g.qkv, &g.z, &g.alpha, &g.beta]);
                    inner.push(&g.out);
                }
                Mixer::Qsa(q) => {
                    hidden.extend([&q.q, &q.k, &q.v, &q.index_q, &q.index_k]);
                    attn.push(&q.out);
                }
            }
            let m = &x.moe;
            hidden.extend([&m.router, &m.shared_router, &m.shared_gate, &m.shared_up, &m.stacks.gate, &m.stacks.up]);
            shared.push(&m.shared_down);
        }
        let g = c.qsa;
        let buf = |width: usize, what: &str| b.buf(rows * width, what);
        let too_long = |_| OpError::OutOfMemory { what: "RoPE tables".into(), bytes: limits.capacity as u128 * c.rope_dims as u128 * 4 };
        // the biggest hidden layer of any block's experts
        let stacks = &blocks[0].moe.stacks;
        Ok(Scratch {
            limits,
            parts: Vec::with_capacity(rows),
            rope: RopeTable::growing(limits.capacity, c.rope_dims, c.rope_theta, c.rope_scaling).map_err(too_long)?,
            r: buf(c.wide(), "residual")?,
            embedding: buf(c.hidden, "embeddings")?,
            row_ids: vec![0; rows],
            hyper: HyperScratch::new(b, c, rows, &reads)?,
            hidden_acts: b.acts(rows, c.hidden, &hidden, "block input")?,
            block_out: buf(c.hidden, "block output")?,
            gdn_work: GdnWork::new(b, c, rows)?,
            gdn_z: buf(c.gdn.inner(), "GDN gate")?,
            gdn_alpha: buf(c.gdn.value_heads, "GDN alpha")?,
            gdn_beta: buf(c.gdn.value_heads, "GDN beta")?,
            gdn_out: buf(c.gdn.inner(), "GDN output")?,
            inner_acts: b.acts(rows, c.gdn.inner(), &inner, "GDN output")?,
            attn_qg: buf(2 * g.heads * g.head_dim, "queries and gates")?,
            attn_q_raw: buf(g.heads * g.head_dim, "queries")?,
            attn_q: buf(g.heads * g.head_dim, "queries")?,
            attn_gate: buf(g.heads * g.head_dim, "attention gates")?,
            attn_k: buf(g.kv_heads * g.head_dim, "keys")?,
            attn_k_normed: buf(g.kv_heads * g.head_dim, "keys")?,
            attn_v: buf(g.kv_heads * g.head_dim, "values")?,
            index_q: buf(g.index_heads * g.index_dim, "index queries")?,
            index_q_normed: buf(g.index_heads * g.index_dim, "index queries")?,
            index_k: buf(g.index_dim, "index keys")?,
            attn_scratch: b.attn_scratch(g, rows, limits.capacity)?,
            attn_out: buf(g.heads * g.head_dim, "attention output")?,
            attn_acts: b.acts(rows, g.heads * g.head_dim, &attn, "attention output")?,
            router_logits: buf(c.experts, "router logits")?,
            routes: Routes::new(rows, c.experts_used),
            guess: Routes::new(rows, c.experts_used),
            shared_router: buf(1, "shared expert gate")?,
            shared_gate: buf(c.shared_width, "shared expert")?,
            shared_up: buf(c.shared_width, "shared expert")?,
            shared_hidden: buf(c.shared_width, "shared expert")?,
            shared_acts: b.acts(rows, c.shared_width, &shared, "shared expert")?,
            shared_out: buf(c.hidden, "shared expert output")?,
            expert_scratch: b.expert_scratch(stacks, rows, c.experts_used)?,
            ngram: match (&c.ngram, &model.ngram) {
                (Some(p), Some(w)) => Some(NgramScratch::new(b, c, p, w, rows)?),
                _ => None,
            },
            head_r: b.buf(limits.head_rows * c.wide(), "head input")?,
            head_hyper: HyperScratch::new(b, c, limits.head_rows, &heads)?,
            head_acts: b.acts(limits.head_rows, c.hidden, &model.head_matrices(), "head input")?,
            logits: b.buf(limits.head_rows * c.vocab, "logits")?,
            mtp: match &model.mtp {
                Some(m) => Some(MtpScratch {
                    wide: buf(c.wide(), "MTP input")?,
                    wide_normed: buf(c.wide(), "MTP input")?,
                    embedding_normed: buf(c.hidden, "MTP embedding")?,
                    joined: buf(2 * c.wide(), "MTP input")?,
                    joined_acts: b.acts(rows * c.streams, 2 * c.hidden, &[&m.project], "MTP input")?,
                }),
                None => None,
            },
        })
    }

    /// Bytes of host memory beside the buffers of the backend, once the whole context is in use.
    pub fn host_bytes(&self) -> u64 {
        let rope = 4 * self.rope.dims() * self.limits.capacity;
        let rows = size_of::<Part>() * self.parts.capacity()
            + 8 * self.row_ids.capacity()
            + 8 * (self.routes.ids.capacity() + self.guess.ids.capacity());
        (rope + rows) as u64 + self.ngram.as_ref().map_or(0, NgramScratch::host_bytes)
    }

    /// The wide residual of the last forward call, of all its rows.
    pub fn residual(&self) -> &B::Buf {
        &self.r
    }

    /// What the last call of [`Model::final_hidden`] gave, `[rows, hidden]`.
    pub fn final_hidden(&self) -> &B::Buf {
        &self.head_hyper.y
    }

    /// The logits of the last call of the head.
    pub fn logits(&self) -> &B::Buf {
        &self.logits
    }
}
