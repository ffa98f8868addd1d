//! What an engine is made for.

use crate::sampler::ExpInPlace;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use strata_ops::math;
use strata_ops::qsa::kv::KvKind;

/// The time since a fixed moment; it never goes back.
pub type Clock = fn() -> Duration;

/// Sizes and choices of an engine, fixed when it is made.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    pub kv: KvKind,
    /// Tokens that a sequence can hold, prompt and output.
    pub capacity: usize,
    /// Prompt tokens run at a time.
    pub chunk: usize,
    /// Tokens drafted at a time with the MTP block, at most; 0 is off.
    pub spec: usize,
    /// Choose at every step how many of them to draft, none included, from measured times.
    pub spec_auto: bool,
    /// Drafting stops before a token whose probability under the draft is below this.
    pub spec_min_p: f32,
    /// Attend to every cell in the MTP block.
    pub mtp_dense: bool,
    /// Rows of logits that one call may ask for in [`Engine::score`](crate::Engine::score).
    pub score_rows: usize,
    /// An exponential with the bits of [`math::exp`], for the sampler: a device's own is faster.
    pub exp: ExpInPlace,
    /// What steps are measured by for [`spec_auto`](Self::spec_auto).
    pub clock: Clock,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            kv: KvKind::Int8,
            capacity: 4096,
            chunk: 512,
            spec: 0,
            spec_auto: false,
            spec_min_p: 0.0,
            mtp_dense: false,
            score_rows: 1,
            exp: |x| x.iter_mut().for_each(|v| *v = math::exp(*v)),
            clock: monotonic,
        }
    }
}

/// The system's clock, since it was first asked.
fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Most tokens drafted at a time: a rollback must stay within the index keys that a cache keeps.
pub const MAX_SPEC: usize = 16;
