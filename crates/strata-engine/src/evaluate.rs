//! Figures of a text's logits: perplexity, and the divergence of one model's distributions from another's.
//!
//! Everything is summed in `f64`, in the order of positions: a text, a window and a model give one figure.

/// Natural logarithm of the sum of the exponentials.
fn log_sum(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|l| (f64::from(*l) - max).exp()).sum::<f64>().ln()
}

/// The most probable token, the lowest id on ties.
pub(crate) fn best(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |b, t| if logits[t] > logits[b] { t } else { b })
}

/// Natural logarithm of a token's probability.
///
/// # Panics
/// If the token has no logit.
pub fn log_probability(logits: &[f32], token: u32) -> f64 {
    f64::from(logits[token as usize]) - log_sum(logits)
}

/// KL divergence, in nats, of the distribution of `logits` from that of `base`: how much is lost where `base` is right. Exactly
/// zero for equal logits.
///
/// # Panics
/// If the numbers of logits differ.
pub fn kl_divergence(base: &[f32], logits: &[f32]) -> f64 {
    assert_eq!(base.len(), logits.len(), "logits of one vocabulary");
    let (sum_b, sum_a) = (log_sum(base), log_sum(logits));
    let term = |(b, a): (&f32, &f32)| {
        let b = f64::from(*b) - sum_b;
        b.exp() * (b - (f64::from(*a) - sum_a))
    };
    // rounding may leave a trace below zero, which no divergence is
    base.iter().zip(logits).map(term).sum::<f64>().max(0.0)
}

/// A mean with its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// Values.
    pub n: u64,
    pub mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Mean {
    /// Takes one more value.
    pub fn add(&mut self, x: f64) {
        self.n += 1;
        let from_old = x - self.mean;
        self.mean += from_old / self.n as f64;
        self.squares += from_old * (x - self.mean);
    }

    /// Standard error of the mean; 0 below two values.
    pub fn error(&self) -> f64 {
        if self.n < 2 { 0.0 } else { (self.squares / (self.n - 1) as f64 / self.n as f64).sqrt() }
    }
}

/// Negative log-probabilities of a text's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    pub loss: Mean,
}

impl Perplexity {
    /// Takes the logits before `token`.
    pub fn add(&mut self, logits: &[f32], token: u32) {
        self.loss.add(-log_probability(logits, token));
    }

    /// exp of the mean loss.
    pub fn value(&self) -> f64 {
        self.loss.mean.exp()
    }

    /// Its standard error, to first order.
    pub fn error(&self) -> f64 {
        self.value() * self.loss.error()
    }
}

/// How the distributions of a model differ from those of a base, over the positions of a text.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    /// KL divergence of each position.
    pub kl: Vec<f64>,
    pub kl_mean: Mean,
    /// 1 where both have the same most probable token.
    pub same_top: Mean,
    /// Of the model, and of the base.
    pub perplexity: Perplexity,
    pub base_perplexity: Perplexity,
    /// Loss of the model less loss of the base.
    pub loss_difference: Mean,
}

impl Divergence {
    /// Takes one position: the base's logits, the model's, and the token that follows.
    ///
    /// # Panics
    /// If the numbers of logits differ.
    pub fn add(&mut self, base: &[f32], logits: &[f32], token: u32) {
        let kl = kl_divergence(base, logits);
        self.kl.push(kl);
        self.kl_mean.add(kl);
        self.same_top.add(f64::from(u8::from(best(base) == best(logits))));
        self.base_perplexity.add(base, token);
        self.perplexity.add(logits, token);
        self.loss_difference.add(log_probability(base, token) - log_probability(logits, token));
    }

    /// Divergences at these shares of the positions, ascending (0.5 is the median); 0 without positions.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut sorted = self.kl.clone();
        sorted.sort_by(f64::total_cmp);
        shares.map(|q| {
            let at = (q * sorted.len().saturating_sub(1) as f64).round() as usize;
            sorted.get(at).copied().unwrap_or(0.0)
        })
    }
}

/// A stretch of a text run as a sequence of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first token.
    pub start: usize,
    /// Its tokens.
    pub len: usize,
    /// Positions before this one, in the window, are context only.
    pub from: usize,
}

/// Windows of `context` tokens, each `stride` after the one before, over a text of `tokens`: in the first every position
/// counts, in the others the last `stride`. A text shorter than a window is one window; tokens after the last whole
/// window do not count, and the last token of a window counts the token after it.
pub fn windows(tokens: usize, context: usize, stride: usize) -> impl ExactSizeIterator<Item = Window> {
    let rows = tokens.saturating_sub(1);
    let len = context.min(rows);
    let stride = stride.clamp(1, context.max(1));
    let count = if len == 0 { 0 } else { (rows - len) / stride + 1 };
    (0..count).map(move |w| Window { start: w * stride, len, from: if w == 0 { 0 } else { len - stride.min(len) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_of_known_distributions() {
        let (p, q) = ([0.5f64, 0.25, 0.25], [0.25f64, 0.25, 0.5]);
        let logits = |p: &[f64; 3], shift: f32| p.map(|x| x.ln() as f32 + shift);
        let want: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        assert!((kl_divergence(&logits(&p, 3.0), &logits(&q, -7.0)) - want).abs() < 1e-6);
        let x = [1.5f32, -2.0, 0.25, 9.0];
        assert_eq!(kl_divergence(&x, &x), 0.0);
        assert!((log_probability(&logits(&p, 100.0), 0) - 0.5f64.ln()).abs() < 1e-5);
    }

    #[test]
    fn means_and_errors() {
        let mut m = Mean::default();
        [1.0, 2.0, 3.0, 4.0].into_iter().for_each(|x| m.add(x));
        assert_eq!(m.mean, 2.5);
        assert!((m.error() - (5.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::default().error(), 0.0);
    }

    #[test]
    fn quantiles_are_ranks() {
        let d = Divergence { kl: vec![3.0, 0.0, 1.0, 2.0, 4.0], ..Divergence::default() };
        assert_eq!(d.quantiles([0.0, 0.5, 1.0]), [0.0, 2.0, 4.0]);
        assert_eq!(Divergence::default().quantiles([0.5]), [0.0]);
    }

    #[test]
    fn windows_count_each_position_once() {
        let all = |n, c, s| windows(n, c, s).collect::<Vec<_>>();
        assert_eq!(all(17, 8, 8), [Window { start: 0, len: 8, from: 0 }, Window { start: 8, len: 8, from: 0 }]);
        assert_eq!(all(16, 8, 8).len(), 1, "the second window's last token has no token after it");
        assert_eq!(all(5, 8, 8), [Window { start: 0, len: 4, from: 0 }]);
        assert!(all(1, 8, 8).is_empty() && all(0, 8, 8).is_empty());
        let mut seen = vec![0; 40];
        for w in windows(41, 8, 2) {
            (w.from..w.len).for_each(|p| seen[w.start + p] += 1);
        }
        assert_eq!(seen, [1; 40]);
    }
}
