//! From logits to a token, with one answer everywhere (NUMERICS.md section 5).
//!
//! The order is: bias, penalties, temperature, top-k, top-p, min-p, draw.
//!
//! - **Bias** is added first: `l = l + bias`, one rounded f32 operation for each entry, in the order of the list.
//! - **Penalties** change the logits of the tokens in a [`History`]; each step below is one rounded f32 operation. The repetition
//!   penalty counts prompt and output: `l = l > 0 ? l / rep : l * rep`. Frequency and presence count generated tokens only (as
//!   OpenAI and vLLM do), after it and in this order: `l = l - f32(count) * frequency`, then `l = l - presence`.
//!   [`SamplingParams::penalty_last_n`] limits all three to the newest tokens of the context (as llama.cpp does).
//! - **Temperature**: `l = l / T`. `T = 0` takes the largest penalised logit, lowest id on ties; so does `top_k = 1` at any
//!   temperature, by definition (two logits may round to one quotient, and the tie must not change the answer).
//! - A **mask** (for grammars) takes tokens out before the filters: ranks and shares are those among the allowed tokens.
//! - **Masses** are integers: `w = floor(exp(l - l_max) * 2^32)`. Their sums are exact, so no order of addition is prescribed.
//! - **Top-k and top-p** rank by (l descending, id ascending); `-0` ranks as `+0`. Top-p keeps the shortest non-empty prefix of
//!   what top-k left with `sum * 2^32 >= floor(top_p * 2^32) * total`; **min-p** keeps `w >= floor(min_p * 2^32)`, which is
//!   the mass of the best token times `min_p`, as that mass is `2^32`.
//! - **Draw**: [`philox4x32_10`] keyed by the seed, with counter (position low, position high, choice, 0), gives `u = x0 + 2^32 * x1`;
//!   `r = (u * total) >> 64`; the token is the first kept one, in ascending id order, whose running sum exceeds r.
//!   The draw depends on (seed, position, choice) and not on how often the sampler was called before.
//!
//! **Log-probabilities** are natural logarithms under the distribution of the raw logits, before bias, penalties, mask
//! and temperature, the default of OpenAI and vLLM: `(l - l_max) - log(S)`, where S is the sum of the raw masses over all ids,
//! divided by `2^32` and rounded once to f32, and log is the polynomial of `strata_ops::math`. Rounding masses down loses less
//! than `n * 2^-32` of S for n ids: at most 6e-5 in the logarithm for 248,320 ids, and far less for a peaked distribution.

mod draw;
mod error;
mod history;
mod params;
mod penalties;
mod philox;
mod rank;
mod sample;

pub use error::SampleError;
pub use history::{History, HistoryError, Origin};
pub use params::{ParamError, SamplingParams};
pub use philox::philox4x32_10;
pub use sample::{Draw, ExpInPlace, Sampled, Sampler, TokenLogprob};
