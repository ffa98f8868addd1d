//! Hyper-connections: the read of the wide residual before a block, and the write after it.

use crate::config::Config;
use crate::error::BindError;
use crate::weights::Binder;
use strata_ops::backend::{Backend, OpError};

/// One read: norm, low-rank gate, and (but for the final mixers) the injection weights of the write.
pub struct Hyper<B: Backend> {
    norm: B::Buf,
    pub(crate) down: B::Matrix,
    pub(crate) up: B::Matrix,
    pub(crate) inject: Option<B::Matrix>,
}

/// Working memory of reads of up to `rows` rows.
pub struct HyperScratch<B: Backend> {
    normed: B::Buf,
    wide_acts: B::Acts,
    low: B::Buf,
    low_acts: B::Acts,
    up: B::Buf,
    /// The read's output, `[rows, hidden]`.
    pub y: B::Buf,
    /// Injection weights, `[rows, streams]`.
    pub inject: B::Buf,
}

impl<B: Backend> HyperScratch<B> {
    pub fn new(b: &B, c: &Config, rows: usize, reads: &[&Hyper<B>]) -> Result<Self, OpError> {
        let wide: Vec<&B::Matrix> = reads.iter().flat_map(|h| std::iter::once(&h.down).chain(h.inject.as_ref())).collect();
        let low: Vec<&B::Matrix> = reads.iter().map(|h| &h.up).collect();
        Ok(HyperScratch {
            normed: b.buf(rows * c.wide(), "normalised residual")?,
            wide_acts: b.acts(rows, c.wide(), &wide, "normalised residual")?,
            low: b.buf(rows * c.low_rank, "low-rank gate")?,
            low_acts: b.acts(rows, c.low_rank, &low, "low-rank gate")?,
            up: b.buf(rows * c.wide(), "stream gates")?,
            y: b.buf(rows * c.hidden, "block input")?,
            inject: b.buf(rows * c.streams, "injection weights")?,
        })
    }
}

impl<B: Backend> Hyper<B> {
    /// Binds `{prefix}_norm`, `_down`, `_up` and, if asked, `_inject` (all `.weight`).
    pub fn bind(w: &Binder<'_, B>, c: &Config, prefix: &str, inject: bool) -> Result<Self, BindError> {
        let name = |part: &str| format!("{prefix}_{part}.weight");
        Ok(Hyper {
            norm: w.vector(&name("norm"), c.wide())?,
            down: w.matrix(&name("down"), c.low_rank, c.wide())?,
            up: w.matrix(&name("up"), c.wide(), c.low_rank)?,
            inject: if inject { Some(w.matrix(&name("inject"), c.streams, c.wide())?) } else { None },
        })
    }

    /// Reads `n` rows of the residual `r` into `s.y` and, if this read has them, the injection weights into `s.inject`.
    pub fn read(&self, b: &B, c: &Config, r: &B::Buf, n: usize, s: &mut HyperScratch<B>) {
        let inv_streams = 1.0 / c.streams as f32;
        b.rms_norm(r, n * c.streams, c.hidden, &self.norm, c.eps, &mut s.normed);
        b.prepare(&s.normed, n, &mut s.wide_acts);
        match &self.inject {
            Some(inject) => {
                b.matmul(&s.wide_acts, n, &mut [(&self.down, &mut s.low), (inject, &mut s.inject)]);
                b.inject_gate(&mut s.inject, n * c.streams, inv_streams);
            }
            None => b.matmul(&s.wide_acts, n, &mut [(&self.down, &mut s.low)]),
        }
        b.low_gate(&mut s.low, n * c.low_rank, inv_streams);
        b.prepare(&s.low, n, &mut s.low_acts);
        b.matmul(&s.low_acts, n, &mut [(&self.up, &mut s.up)]);
        b.hyper_mix(&s.up, &s.normed, n, c.streams, c.hidden, &mut s.y);
    }
}
