//! Gated DeltaNet layers.

use crate::config::Config;
use crate::error::BindError;
use crate::scratch::Scratch;
use crate::segment::{Part, States, total, with_states};
use crate::weights::Binder;
use std::ops::Range;
use strata_ops::backend::{Backend, GdnRows, OpError};
use strata_ops::conv::state_rows;

/// Weights of one layer.
pub struct Gdn<B: Backend> {
    pub(crate) qkv: B::Matrix,
    pub(crate) z: B::Matrix,
    pub(crate) beta: B::Matrix,
    pub(crate) alpha: B::Matrix,
    a: B::Buf,
    dt: B::Buf,
    conv: B::Buf,
    norm: B::Buf,
    pub(crate) out: B::Matrix,
}

/// One sequence's state of one layer.
pub struct GdnState<B: Backend> {
    /// The last `taps - 1` rows before the convolution.
    conv: B::Buf,
    /// The recurrent state of every value head.
    state: B::Buf,
    /// Rows seen but not committed.
    pending: Option<GdnWork<B>>,
}

/// What a layer computes of its rows before the scan.
pub struct GdnWork<B: Backend> {
    /// Before the convolution, `[rows, conv_dim]`.
    u: B::Buf,
    /// After it, queries and keys normalised.
    qkv: B::Buf,
    decay: B::Buf,
    beta: B::Buf,
}

impl<B: Backend> GdnWork<B> {
    pub fn new(b: &B, c: &Config, rows: usize) -> Result<Self, OpError> {
        Ok(GdnWork {
            u: b.buf(rows * c.gdn.conv_dim(), "GDN projections")?,
            qkv: b.buf(rows * c.gdn.conv_dim(), "GDN queries, keys and values")?,
            decay: b.buf(rows * c.gdn.value_heads, "GDN decay")?,
            beta: b.buf(rows * c.gdn.value_heads, "GDN beta")?,
        })
    }

    /// Takes over `rows` of `from`.
    fn keep(&mut self, b: &B, c: &Config, from: &GdnWork<B>, rows: Range<usize>) {
        let copy = |from: &B::Buf, to: &mut B::Buf, width: usize| b.copy(from, rows.start * width, to, 0, rows.len() * width);
        copy(&from.u, &mut self.u, c.gdn.conv_dim());
        copy(&from.qkv, &mut self.qkv, c.gdn.conv_dim());
        copy(&from.decay, &mut self.decay, c.gdn.value_heads);
        copy(&from.beta, &mut self.beta, c.gdn.value_heads);
    }

    fn rows<'a>(&'a self, c: &Config) -> GdnRows<'a, B> {
        GdnRows { qkv: &self.qkv, decay: &self.decay, beta: &self.beta, shape: c.gdn }
    }
}

impl<B: Backend> GdnState<B> {
    /// A zero state; `window` rows may be seen without being committed.
    pub fn new(b: &B, c: &Config, window: usize) -> Result<Self, OpError> {
        Ok(GdnState {
            conv: b.buf(state_rows(c.conv_taps, 1) * c.gdn.conv_dim(), "GDN convolution state")?,
            state: b.buf(c.gdn.state_len(), "GDN state")?,
            pending: if window > 0 { Some(GdnWork::new(b, c, window)?) } else { None },
        })
    }

    /// Commits the first `n` pending rows.
    pub fn commit(&mut self, b: &B, c: &Config, n: usize) {
        if let Some(p) = &self.pending {
            b.gdn_commit(p.rows(c), 0..n, &mut self.state);
            b.conv_advance(&mut self.conv, &p.u, c.gdn.conv_dim(), 0..n);
        }
    }

    /// Lengths of [`GdnState::buffers`].
    pub(crate) fn parts(c: &Config) -> [usize; 2] {
        [state_rows(c.conv_taps, 1) * c.gdn.conv_dim(), c.gdn.state_len()]
    }

    /// The states that recur: the convolution's, and the delta rule's.
    pub(crate) fn buffers(&self) -> [&B::Buf; 2] {
        [&self.conv, &self.state]
    }

    pub(crate) fn buffers_mut(&mut self) -> [&mut B::Buf; 2] {
        [&mut self.conv, &mut self.state]
    }

    /// Back to the start of a sequence.
    pub fn clear(&mut self, b: &B, c: &Config) {
        b.write(&mut self.conv, 0, &vec![0.0; state_rows(c.conv_taps, 1) * c.gdn.conv_dim()]);
        b.write(&mut self.state, 0, &vec![0.0; c.gdn.state_len()]);
    }
}

impl<B: Backend> Gdn<B> {
    pub fn bind(w: &Binder<'_, B>, c: &Config, block: usize) -> Result<Self, BindError> {
        let name = |part: &str| format!("blk.{block}.{part}");
        let g = &c.gdn;
        Ok(Gdn {
            qkv: w.matrix(&name("attn_qkv.weight"), g.conv_dim(), c.hidden)?,
            z: w.matrix(&name("attn_gate.weight"), g.inner(), c.hidden)?,
            beta: w.matrix(&name("ssm_beta.weight"), g.value_heads, c.hidden)?,
            alpha: w.matrix(&name("ssm_alpha.weight"), g.value_heads, c.hidden)?,
            a: w.vector(&name("ssm_a"), g.value_heads)?,
            dt: w.vector(&name("ssm_dt.bias"), g.value_heads)?,
            conv: w.taps(&name("ssm_conv1d.weight"), c.conv_taps, g.conv_dim())?,
            norm: w.vector(&name("ssm_norm.weight"), g.value_dim)?,
            out: w.matrix(&name("ssm_out.weight"), c.hidden, g.inner())?,
        })
    }

    /// The layer's output of every row of `parts` from `s.hyper.y` into `s.block_out`. The state of a part that is not
    /// committed stays where it is and its rows are kept for [`GdnState::commit`].
    pub(crate) fn forward(&self, b: &B, c: &Config, s: &mut Scratch<B>, states: &mut impl States<B>, parts: &[Part]) {
        let (n, work) = (total(parts), &mut s.gdn_work);
        b.prepare(&s.hyper.y, n, &mut s.hidden_acts);
        b.matmul(
            &s.hidden_acts,
            n,
            &mut [(&self.qkv, &mut work.u), (&self.z, &mut s.gdn_z), (&self.alpha, &mut s.gdn_alpha), (&self.beta, &mut s.gdn_beta)],
        );
        let convs = with_states(states, parts, |st| &mut st.gdn().conv);
        b.conv_silu(&work.u, convs, c.gdn.conv_dim(), &self.conv, 1, &mut work.qkv);
        b.gdn_norm(&mut work.qkv, n, c.gdn, c.eps);
        b.gdn_gates(&s.gdn_alpha, &s.gdn_beta, &self.a, &self.dt, n, &mut work.decay, &mut work.beta);
        b.gdn(work.rows(c), with_states(states, parts, |st| &mut st.gdn().state), &mut s.gdn_out);
        for p in parts {
            let GdnState { conv, pending, .. } = states.of(p.seq).gdn();
            match pending {
                _ if p.commit => b.conv_advance(conv, &work.u, c.gdn.conv_dim(), p.rows.clone()),
                Some(kept) => kept.keep(b, c, work, p.rows.clone()),
                None => {}
            }
        }
        b.gdn_gated_norm(&mut s.gdn_out, &s.gdn_z, &self.norm, n, c.gdn, c.eps);
        b.prepare(&s.gdn_out, n, &mut s.inner_acts);
        b.matmul(&s.inner_acts, n, &mut [(&self.out, &mut s.block_out)]);
    }
}
