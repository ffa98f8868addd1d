//! The sampler: scratch memory and the steps in their order.

use super::rank;
use super::{History, SampleError, SamplingParams, draw, penalties};
use strata_ops::math;

/// `2^32`, the mass of the best token.
const ONE: f32 = 4_294_967_296.0;
/// Below this `exp(l - l_max) * 2^32` is under one half: the mass is 0, and such a token changes no sum and is never drawn.
const CUTOFF: f32 = -23.0;

/// Replaces each x by `strata_ops::math::exp(x)`, to the bit. A backend may give one compiled for its instruction set.
pub type ExpInPlace = fn(&mut [f32]);

/// A token and its log-probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// The id.
    pub token: u32,
    /// Natural logarithm of its probability under the raw logits.
    pub logprob: f32,
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// The id.
    pub token: u32,
    /// Its log-probability under the raw logits, if [`SamplingParams::logprobs`] asks for it.
    pub logprob: Option<f32>,
    /// How many entries of the caller's buffer were written: the number asked for, or the vocabulary if that is smaller.
    pub top_len: usize,
}

/// Where a token is drawn, and what is asked of it beside [`SamplingParams`].
#[derive(Clone, Copy, Default)]
pub struct Draw<'a> {
    /// Place of the token in its sequence.
    pub position: u64,
    /// Which of the request's choices it belongs to.
    pub choice: u32,
    /// The tokens before it; needed if there are penalties.
    pub history: Option<&'a History>,
    /// Values added to the logits of tokens, in this order.
    pub bias: &'a [(u32, f32)],
    /// Bit `i % 32` of word `i / 32` allows token i, `ceil(vocab / 32)` words; `None` allows all.
    pub allowed: Option<&'a [u32]>,
}

/// Draws tokens. Holds memory for one row of logits (28 bytes a token of the vocabulary) and no state between calls.
pub struct Sampler {
    exp: ExpInPlace,
    /// Logits after penalties, temperature and mask, by id.
    row: Vec<f32>,
    /// The ids whose mass may be above 0, ascending, with their logits and masses.
    ids: Vec<u32>,
    logits: Vec<f32>,
    mass: Vec<u64>,
    /// Rank keys of places in `ids`.
    keys: Vec<u64>,
}

impl Sampler {
    /// A sampler for rows of `vocab` logits. Nothing is allocated after this.
    pub fn new(vocab: u32) -> Self {
        Sampler::with_exp(vocab, |x| x.iter_mut().for_each(|v| *v = math::exp(*v)))
    }

    /// [`Sampler::new`] with another, equal exponential.
    pub fn with_exp(vocab: u32, exp: ExpInPlace) -> Self {
        let n = vocab as usize;
        Sampler { exp, row: vec![0.0; n], ids: vec![0; n], logits: vec![0.0; n], mass: vec![0; n], keys: Vec::with_capacity(n) }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.row.capacity() + self.ids.capacity() + self.logits.capacity()) + 8 * (self.mass.capacity() + self.keys.capacity())
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.row.len()
    }

    /// Draws the token of one row. See the [module](super) for every step.
    ///
    /// - `logits`: the model's, one a token, finite.
    /// - `top`: receives the most probable tokens, best first, lowest id on ties; at least as long as `params.logprobs` asks.
    ///
    /// # Errors
    /// See [`SampleError`]; `top` is then unchanged.
    pub fn sample(
        &mut self,
        logits: &[f32],
        params: &SamplingParams,
        at: Draw<'_>,
        top: &mut [TokenLogprob],
    ) -> Result<Sampled, SampleError> {
        params.validate()?;
        let wanted = params.logprobs.map_or(0, usize::from);
        if top.len() < wanted {
            return Err(SampleError::TopBuffer { expected: wanted, found: top.len() });
        }
        self.load(logits, params, at)?;
        let best = largest(&self.row);
        if best == f32::NEG_INFINITY {
            return Err(SampleError::NothingAllowed);
        }
        let token = if params.is_greedy() {
            // there is a first one: `best` is in the row
            self.row.iter().position(|&l| l == best).unwrap_or(0) as u32
        } else {
            self.draw(best, params, at.position, at.choice)
        };
        let mut sampled = Sampled { token, logprob: None, top_len: 0 };
        if params.logprobs.is_some() {
            let best = largest(logits);
            let log_sum = self.log_sum(logits, best);
            let logprob = |l: f32| (l - best) - log_sum;
            sampled.logprob = Some(logprob(logits[token as usize]));
            sampled.top_len = top_tokens(logits, &mut top[..wanted.min(logits.len())], logprob);
        }
        Ok(sampled)
    }

    /// Checks the inputs and fills `row`.
    fn load(&mut self, logits: &[f32], params: &SamplingParams, at: Draw<'_>) -> Result<(), SampleError> {
        let vocab = self.row.len();
        if logits.len() != vocab {
            return Err(SampleError::Logits { expected: vocab, found: logits.len() });
        }
        if let Some((token, value)) = non_finite(logits) {
            return Err(SampleError::NonFinite { token, value });
        }
        self.row.copy_from_slice(logits);
        for &(token, value) in at.bias {
            let l = self.row.get_mut(token as usize).ok_or(SampleError::Bias { token, vocab })?;
            *l += value;
        }
        if params.has_penalties() {
            let history = at.history.ok_or(SampleError::NoHistory)?;
            if history.vocab() != vocab {
                return Err(SampleError::HistoryVocab { expected: vocab, found: history.vocab() });
            }
            if history.window() != params.penalty_last_n {
                return Err(SampleError::HistoryWindow { expected: params.penalty_last_n, found: history.window() });
            }
            penalties::apply(&mut self.row, history, params);
        }
        if !params.is_greedy() && params.temperature != 1.0 {
            self.row.iter_mut().for_each(|l| *l /= params.temperature);
        }
        if let Some((token, value)) = non_finite(&self.row) {
            return Err(SampleError::Overflow { token, value });
        }
        if let Some(words) = at.allowed {
            if words.len() != vocab.div_ceil(32) {
                return Err(SampleError::Mask { expected: vocab.div_ceil(32), found: words.len() });
            }
            for (row, word) in self.row.chunks_mut(32).zip(words) {
                for (bit, l) in row.iter_mut().enumerate() {
                    *l = if word >> bit & 1 == 1 { *l } else { f32::NEG_INFINITY };
                }
            }
        }
        Ok(())
    }

    /// Top-k, top-p, min-p and the draw over `row`, whose maximum is `best`.
    fn draw(&mut self, best: f32, params: &SamplingParams, position: u64, choice: u32) -> u32 {
        let mut n = gather(&self.row, best, &mut self.ids, &mut self.logits);
        let k = params.top_k as usize;
        if k != 0 && k < n {
            self.rank(n);
            self.keys.select_nth_unstable(k - 1);
            self.keys.truncate(k);
            self.keep_ranked();
            n = k;
        }
        let top_p = fixed(params.top_p);
        if top_p < fixed(1.0) {
            self.rank(n);
        }
        let mut total = masses(&mut self.logits[..n], best, &mut self.mass[..n], self.exp);
        if top_p < fixed(1.0) {
            let kept = rank::mass_prefix(&mut self.keys, &self.mass, top_p, total);
            for &key in &self.keys[kept..] {
                self.mass[rank::index(key)] = 0;
            }
        }
        let mass = &mut self.mass[..n];
        let min_p = fixed(params.min_p);
        total = 0;
        for w in mass.iter_mut() {
            *w = if *w >= min_p { *w } else { 0 };
            total += *w;
        }
        let u = draw::uniform(params.seed, position, choice);
        self.ids[draw::place(mass, total, u)]
    }

    /// Fills `keys` with the first n places.
    fn rank(&mut self, n: usize) {
        self.keys.clear();
        self.keys.extend(self.logits[..n].iter().zip(0..).map(|(&l, i)| rank::key(l, i)));
    }

    /// Moves the places in `keys` to the front, ids ascending.
    fn keep_ranked(&mut self) {
        self.keys.iter_mut().for_each(|k| *k = rank::index(*k) as u64);
        self.keys.sort_unstable();
        for (to, &from) in self.keys.iter().enumerate() {
            self.ids[to] = self.ids[from as usize];
            self.logits[to] = self.logits[from as usize];
        }
    }

    /// Logarithm of the sum of `exp(l - best)` over a row, by integer masses.
    fn log_sum(&mut self, row: &[f32], best: f32) -> f32 {
        let n = gather(row, best, &mut self.ids, &mut self.logits);
        let total = masses(&mut self.logits[..n], best, &mut self.mass[..n], self.exp);
        // exact in f64 (the sum is below 2^53 for two million ids), rounded once to f32
        math::log((total as f64 / f64::from(ONE)) as f32)
    }
}

/// A share in `0..=1` as `floor(share * 2^32)`; the product is exact.
fn fixed(share: f32) -> u64 {
    (share * ONE) as u64
}

/// Writes the ids whose mass may be above 0, ascending, and their logits. Returns how many. All that it leaves out rank below
/// all that it keeps.
fn gather(row: &[f32], best: f32, ids: &mut [u32], logits: &mut [f32]) -> usize {
    let mut n = 0;
    for (&l, id) in row.iter().zip(0..) {
        ids[n] = id;
        logits[n] = l;
        n += usize::from(l - best >= CUTOFF);
    }
    n
}

/// Masses of logits, which are overwritten, and their sum.
fn masses(logits: &mut [f32], best: f32, mass: &mut [u64], exp: ExpInPlace) -> u64 {
    logits.iter_mut().for_each(|l| *l -= best);
    exp(logits);
    let mut total = 0;
    for (w, &e) in mass.iter_mut().zip(logits.iter()) {
        // the product by a power of two is exact, and the conversion rounds down
        *w = (e * ONE) as u64;
        total += *w;
    }
    total
}

/// Maximum of a row without NaN; negative infinity for an empty one.
fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 32];
    let (body, tail) = row.as_chunks::<32>();
    for chunk in body {
        for (m, &l) in lanes.iter_mut().zip(chunk) {
            *m = if l > *m { l } else { *m };
        }
    }
    lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |m, &l| if l > m { l } else { m })
}

/// The first NaN or infinity of a row.
fn non_finite(row: &[f32]) -> Option<(u32, f32)> {
    row.chunks(1024).zip(0u32..).find_map(|(chunk, c)| {
        let bad = chunk.iter().fold(false, |bad, l| bad | !l.is_finite());
        let at = if bad { chunk.iter().position(|l| !l.is_finite()) } else { None }?;
        Some((c * 1024 + at as u32, chunk[at]))
    })
}

/// Fills `top` (no longer than the row) with the largest logits, lowest id on ties, as log-probabilities.
fn top_tokens(row: &[f32], top: &mut [TokenLogprob], logprob: impl Fn(f32) -> f32) -> usize {
    let len = top.len();
    let mut n = 0;
    for (&l, token) in row.iter().zip(0..) {
        // ids come ascending, so an equal logit goes behind those already there
        if n == len && (len == 0 || l <= top[len - 1].logprob) {
            continue;
        }
        n = len.min(n + 1);
        let mut at = n - 1;
        while at > 0 && top[at - 1].logprob < l {
            top[at] = top[at - 1];
            at -= 1;
        }
        top[at] = TokenLogprob { token, logprob: l };
    }
    top.iter_mut().for_each(|t| t.logprob = logprob(t.logprob));
    len
}
