//! Mixture of experts: routing and the weighted sum.

use crate::math::{exp, sigmoid, silu};

/// The top `ids.len()` experts of one row by (logit descending, id ascending) and their weights: softmax over the
/// chosen logits, `exp(r_i - r_max) / sum`, the sum in rank order.
#[inline(always)]
pub fn route(logits: &[f32], ids: &mut [u32], weights: &mut [f32]) {
    for rank in 0..ids.len() {
        let mut best = u32::MAX;
        let mut best_logit = f32::NEG_INFINITY;
        for (id, l) in logits.iter().enumerate() {
            let id = id as u32;
            if (best == u32::MAX || *l > best_logit) && !ids[..rank].contains(&id) {
                best = id;
                best_logit = *l;
            }
        }
        ids[rank] = best;
        weights[rank] = best_logit;
    }
    let max = weights[0];
    let mut sum = 0.0f32;
    for w in weights.iter_mut() {
        *w = exp(*w - max);
        sum += *w;
    }
    for w in weights.iter_mut() {
        *w /= sum;
    }
}

/// `h = silu(gate) * up`, elementwise.
#[inline(always)]
pub fn silu_mul(gate: &[f32], up: &[f32], h: &mut [f32]) {
    for ((h, g), u) in h.iter_mut().zip(gate).zip(up) {
        *h = silu(*g) * u;
    }
}

/// `out = fma chain over ranks of weights[r] * experts[r]` from +0, then `fma(sigmoid(shared_gate), shared, out)`.
///
/// `experts`: `[ranks, hidden]`; `shared`, `out`: `[hidden]`.
#[inline(always)]
pub fn combine(experts: &[f32], weights: &[f32], shared: &[f32], shared_gate: f32, out: &mut [f32]) {
    out.fill(0.0);
    for (e, w) in experts.chunks_exact(out.len()).zip(weights) {
        for (o, e) in out.iter_mut().zip(e) {
            *o = w.mul_add(*e, *o);
        }
    }
    let g = sigmoid(shared_gate);
    for (o, s) in out.iter_mut().zip(shared) {
        *o = g.mul_add(*s, *o);
    }
}

/// `o = o * sigmoid(gate)`, elementwise: the output gate of attention.
#[inline(always)]
pub fn gate_output(o: &mut [f32], gate: &[f32]) {
    for (o, g) in o.iter_mut().zip(gate) {
        *o *= sigmoid(*g);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_id_and_weights_sum_to_one() {
        let logits = [0.5, 2.0, -1.0, 2.0, 0.5];
        let (mut ids, mut w) = ([0; 3], [0.0; 3]);
        route(&logits, &mut ids, &mut w);
        assert_eq!(ids, [1, 3, 0]);
        assert!((w.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(w[0].to_bits(), w[1].to_bits());
    }

    #[test]
    fn every_expert_may_be_chosen() {
        let logits = [f32::NEG_INFINITY, 1.0];
        let (mut ids, mut w) = ([0; 2], [0.0; 2]);
        route(&logits, &mut ids, &mut w);
        assert_eq!(ids, [1, 0]);
        assert_eq!(w[1], 0.0);
    }
}
