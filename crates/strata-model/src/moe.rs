//! Mixture of experts with a shared expert.

use crate::config::Config;
use crate::error::BindError;
use crate::observer::Observer;
use crate::scratch::Scratch;
use crate::segment::{Part, positions, total};
use crate::storage::{ExpertWatch, StorageError};
use crate::unseen::{Stack, Unseen};
use crate::weights::Binder;
use strata_ops::backend::{Backend, ExpertStacks};

/// Weights of one layer.
pub struct Moe<B: Backend> {
    pub(crate) router: B::Matrix,
    pub(crate) stacks: ExpertStacks<B::Matrix>,
    pub(crate) shared_router: B::Matrix,
    pub(crate) shared_gate: B::Matrix,
    pub(crate) shared_up: B::Matrix,
    pub(crate) shared_down: B::Matrix,
    unseen: Unseen,
}

/// Who is told of experts in a pass, and the router of the next layer, which guesses the experts of that layer.
pub struct Ahead<'a, B: Backend> {
    pub watch: Option<&'a dyn ExpertWatch>,
    pub next: Option<&'a B::Matrix>,
}

impl<B: Backend> Moe<B> {
    pub fn bind(w: &Binder<'_, B>, c: &Config, block: usize) -> Result<Self, BindError> {
        let name = |part: &str| format!("blk.{block}.{part}.weight");
        let (e, width) = (c.experts, c.expert_width);
        let fused = name("ffn_gate_up_exps");
        let mut unseen: Vec<Stack> = Vec::new();
        let mut stack = |part: &str, rows: usize, cols: usize| -> Result<B::Matrix, BindError> {
            let (m, rest) = w.stack(&name(part), block, e, rows, cols)?;
            unseen.extend(rest);
            Ok(m)
        };
        let (gate, up) = if w.has(&fused) {
            w.fused_stack(&fused, e, width, c.hidden)?
        } else {
            (stack("ffn_gate_exps", width, c.hidden)?, stack("ffn_up_exps", width, c.hidden)?)
        };
        let down = stack("ffn_down_exps", c.hidden, width)?;
        Ok(Moe {
            router: w.matrix(&name("ffn_gate_inp"), e, c.hidden)?,
            stacks: ExpertStacks { gate, up, down, experts: e, width, hidden: c.hidden },
            shared_router: w.matrix(&name("ffn_gate_inp_shexp"), 1, c.hidden)?,
            shared_gate: w.matrix(&name("ffn_gate_shexp"), c.shared_width, c.hidden)?,
            shared_up: w.matrix(&name("ffn_up_shexp"), c.shared_width, c.hidden)?,
            shared_down: w.matrix(&name("ffn_down_shexp"), c.hidden, c.shared_width)?,
            unseen: Unseen::new(e, unseen),
        })
    }

    /// `s.hyper.y` to `s.block_out`, the rows of `parts`.
    ///
    /// # Errors
    /// An expert that is used for the first time holds a scale that is not finite.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn forward(
        &self,
        b: &B,
        c: &Config,
        s: &mut Scratch<B>,
        parts: &[Part],
        layer: usize,
        observer: &mut Option<&mut dyn Observer>,
        ahead: &Ahead<'_, B>,
    ) -> Result<(), StorageError> {
        let n = total(parts);
        b.prepare(&s.hyper.y, n, &mut s.hidden_acts);
        b.matmul(
            &s.hidden_acts,
            n,
            &mut [
                (&self.router, &mut s.router_logits),
                (&self.shared_gate, &mut s.shared_gate),
                (&self.shared_up, &mut s.shared_up),
                (&self.shared_router, &mut s.shared_router),
            ],
        );
        b.route(&s.router_logits, n, c.experts, &mut s.routes);
        if let Some(o) = observer {
            let mut logits = vec![0.0; n * c.experts];
            b.read(&s.router_logits, 0, &mut logits);
            let k = s.routes.ranks;
            for ((row, position), l) in positions(parts).zip(logits.chunks_exact(c.experts)) {
                let at = row * k..(row + 1) * k;
                o.experts(layer, position, l, &s.routes.ids[at.clone()], &s.routes.weights[at]);
            }
        }
        let ids = &s.routes.ids[..n * s.routes.ranks];
        if let Some(watch) = ahead.watch {
            watch.needed(layer, ids);
            if let Some(next) = ahead.next.filter(|_| watch.wants(layer + 1, n)) {
                b.matmul(&s.hidden_acts, n, &mut [(next, &mut s.router_logits)]);
                b.route(&s.router_logits, n, c.experts, &mut s.guess);
                watch.predicted(layer + 1, &s.guess.ids[..n * s.guess.ranks]);
            }
        }
        self.unseen.check(ids)?;
        b.silu_mul(&s.shared_gate, &s.shared_up, n * c.shared_width, &mut s.shared_hidden);
        b.prepare(&s.shared_hidden, n, &mut s.shared_acts);
        b.matmul(&s.shared_acts, n, &mut [(&self.shared_down, &mut s.shared_out)]);
        b.experts(&self.stacks, &s.hidden_acts, &s.routes, n, &s.shared_out, &s.shared_router, &mut s.expert_scratch, &mut s.block_out);
        Ok(())
    }
}
