//! Parity suites: the fast arm of an op against its definition, by bits. They run from the tests in small sizes and
//! from `strata parity` in full.

mod ops;
mod qsa;
mod qsa_attn;
pub mod rng;

pub use ops::{ops_parity, ops_parity_of};
pub use qsa::{ScoreCase, ScoreInputs, reference_scores, score_cases};
pub use qsa::{TOPK_CAPACITY, TopkCase, qsa_scores_parity, qsa_scores_parity_of, qsa_topk_active_parity, qsa_topk_active_parity_of};
pub use qsa_attn::{attention_f64, qsa_attn_parity, qsa_attn_parity_of, reference_head_paged};
#[cfg(test)]
pub(crate) use {qsa::sorted, qsa_attn::reference_head};

/// Result of one case of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseReport {
    pub suite: &'static str,
    pub case: String,
    /// Values compared by bits.
    pub compared: u64,
    /// Values whose bits differ; 0 passes.
    pub differing: u64,
    /// Largest error against an FP64 reference as a share of the largest reference value, where one is computed.
    pub max_err64: Option<f64>,
}

/// What a suite runs against the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The best kernels of this CPU.
    Fast,
    /// The kernels of one level.
    Level(crate::simd::Simd),
    /// A deliberately wrong kernel: the suite must report differences, which shows that it can.
    Broken,
}

/// Threads that suites use.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}
