//! Exactness suites: every kernel against the CPU's definition, by bits.

mod arch_defaults;
pub(crate) mod attn_data;
mod gemm;
mod kv_append;
mod mmvq;
mod prompt_attn;
pub(crate) mod prompt_data;
pub(crate) mod qsa_matrix;
mod qsa_merge;
pub(crate) mod qsa_scores;
mod qsa_topk;
mod words;

use crate::device::Device;
use crate::error::Result;
pub use arch_defaults::{arch_defaults_cases, arch_defaults_test};
pub use gemm::gemm_parity;
pub use kv_append::kv_append_parity;
pub use mmvq::{mmvq_multi_parity, mmvq_multi_parity_broken, quantize_parity};
pub use prompt_attn::prompt_attn_parity;
pub use qsa_matrix::qsa_matrix_gate;
pub use qsa_merge::qsa_merge_daily_parity;
pub use qsa_scores::{qsa_rows_parity, qsa_scores_parity};
pub use qsa_topk::qsa_topk_active_parity;
use strata_cpu::parity::CaseReport;
pub use words::words_parity;

/// A suite of one device: `full` runs the published sizes.
pub type SuiteFn = fn(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()>;

/// A suite and the name the field knows it by.
pub struct Suite {
    pub name: &'static str,
    pub about: &'static str,
    pub run: SuiteFn,
}

/// Every suite.
pub static SUITES: &[Suite] = &[
    Suite { name: "words_parity", about: "lane exchange, byte permutes, barriers, conversions, matrix instructions", run: words_parity },
    Suite { name: "qsa_scores_parity", about: "block scores of prompts: warp, thread and tail kernels", run: qsa_scores_parity },
    Suite { name: "qsa_rows_parity", about: "block scores of decode: multi, rows<1..8> and slots kernels", run: qsa_rows_parity },
    Suite { name: "qsa_matrix_gate", about: "block scores by matrix instructions, opt-in: error against FP64", run: qsa_matrix_gate },
    Suite { name: "quantize_parity", about: "activations to int8 blocks, one and two orders", run: quantize_parity },
    Suite { name: "mmvq_multi_parity", about: "mat-vec of every format for 1 to 8 columns, and experts", run: mmvq_multi_parity },
    Suite { name: "gemm_parity", about: "integer product tiles of every format against the definition", run: gemm_parity },
    Suite { name: "qsa_topk_active_parity", about: "ids of the block top-k, every kernel and the dispatch", run: qsa_topk_active_parity },
    Suite { name: "kv_append_parity", about: "KV appends in four formats, raw and pooled index keys", run: kv_append_parity },
    Suite {
        name: "qsa_merge_daily_parity",
        about: "decode attention of four KV formats, chunk kernels and merge",
        run: qsa_merge_daily_parity,
    },
    Suite {
        name: "arch_defaults_test",
        about: "defaults of architectures: exact, in effect, overridden by explicit values",
        run: arch_defaults_test,
    },
    Suite { name: "prompt_attn_parity", about: "prompt attention of four KV formats", run: prompt_attn_parity },
];

/// Counts the words in which two arrays differ.
pub(crate) fn differing<T: bytemuck::Pod>(got: &[T], want: &[T]) -> u64 {
    let size = size_of::<T>().max(1);
    let (a, b) = (bytemuck::cast_slice::<T, u8>(got), bytemuck::cast_slice::<T, u8>(want));
    a.chunks(size).zip(b.chunks(size)).filter(|(x, y)| x != y).count() as u64 + got.len().abs_diff(want.len()) as u64
}
