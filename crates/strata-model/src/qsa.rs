//! Qwen Sparse Attention layers.

use crate::block::LayerState;
use crate::config::Config;
use crate::error::BindError;
use crate::observer::Observer;
use crate::scratch::Scratch;
use crate::segment::{Part, States, positions, total, with_states};
use crate::weights::Binder;
use strata_ops::backend::{Backend, QsaGeometry};

/// Weights of one layer.
pub struct Qsa<B: Backend> {
    pub(crate) q: B::Matrix,
    pub(crate) k: B::Matrix,
    pub(crate) v: B::Matrix,
    pub(crate) out: B::Matrix,
    q_norm: B::Buf,
    k_norm: B::Buf,
    pub(crate) index_q: B::Matrix,
    pub(crate) index_k: B::Matrix,
    index_q_norm: B::Buf,
    index_k_norm: B::Buf,
    geometry: QsaGeometry,
}

impl<B: Backend> Qsa<B> {
    pub fn bind(w: &Binder<'_, B>, c: &Config, block: usize, dense: bool) -> Result<Self, BindError> {
        let name = |part: &str| format!("blk.{block}.{part}.weight");
        let g = QsaGeometry { dense, ..c.qsa };
        Ok(Qsa {
            q: w.matrix(&name("attn_q"), 2 * g.heads * g.head_dim, c.hidden)?,
            k: w.matrix(&name("attn_k"), g.kv_heads * g.head_dim, c.hidden)?,
            v: w.matrix(&name("attn_v"), g.kv_heads * g.head_dim, c.hidden)?,
            out: w.matrix(&name("attn_output"), c.hidden, g.heads * g.head_dim)?,
            q_norm: w.vector(&name("attn_q_norm"), g.head_dim)?,
            k_norm: w.vector(&name("attn_k_norm"), g.head_dim)?,
            index_q: w.matrix(&name("indexer.q_proj"), g.index_heads * g.index_dim, c.hidden)?,
            index_k: w.matrix(&name("indexer.k_proj"), g.index_dim, c.hidden)?,
            index_q_norm: w.vector(&name("indexer.q_norm"), g.index_dim)?,
            index_k_norm: w.vector(&name("indexer.k_norm"), g.index_dim)?,
            geometry: g,
        })
    }

    /// Appends the rows of `parts` to their caches and attends from them: `s.hyper.y` to `s.block_out`.
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
    ) {
        let g = &self.geometry;
        let n = total(parts);
        b.prepare(&s.hyper.y, n, &mut s.hidden_acts);
        b.matmul(
            &s.hidden_acts,
            n,
            &mut [
                (&self.q, &mut s.attn_qg),
                (&self.k, &mut s.attn_k),
                (&self.v, &mut s.attn_v),
                (&self.index_q, &mut s.index_q),
                (&self.index_k, &mut s.index_k),
            ],
        );
        b.split_gate(&s.attn_qg, n, g.heads, g.head_dim, &mut s.attn_q_raw, &mut s.attn_gate);
        b.rms_norm(&s.attn_q_raw, n * g.heads, g.head_dim, &self.q_norm, c.eps, &mut s.attn_q);
        b.rms_norm(&s.attn_k, n * g.kv_heads, g.head_dim, &self.k_norm, c.eps, &mut s.attn_k_normed);
        b.rms_norm(&s.index_q, n * g.index_heads, g.index_dim, &self.index_q_norm, c.eps, &mut s.index_q_normed);
        for p in parts {
            let (cache, rows, first) = (states.of(p.seq).cache(), || p.rows.clone(), p.first);
            b.rope(&mut s.attn_q, rows(), g.heads, g.head_dim, &s.rope, first);
            b.rope(&mut s.attn_k_normed, rows(), g.kv_heads, g.head_dim, &s.rope, first);
            b.rope(&mut s.index_q_normed, rows(), g.index_heads, g.index_dim, &s.rope, first);
            b.kv_append(cache, &s.attn_k_normed, &s.attn_v, &s.index_k, rows(), &self.index_k_norm, c.eps, &s.rope);
        }
        b.attend(*g, &s.attn_q, &s.index_q_normed, with_states(states, parts, LayerState::cache), &mut s.attn_scratch, &mut s.attn_out);
        if let Some(o) = observer {
            for p in parts {
                let cache = &*states.of(p.seq).cache();
                for (row, position) in positions(std::slice::from_ref(p)) {
                    if let Some((blocks, scores)) = b.selected_blocks(cache, *g, &s.index_q_normed, row, position) {
                        o.selection(layer, position, &blocks, &scores);
                    }
                }
            }
        }
        b.gate_output(&mut s.attn_out, &s.attn_gate, n * g.heads * g.head_dim);
        b.prepare(&s.attn_out, n, &mut s.attn_acts);
        b.matmul(&s.attn_acts, n, &mut [(&self.out, &mut s.block_out)]);
    }
}
