//! Exactness suites: every kernel against the CPU's definition, by bits.

mod attn_data;
mod prompt_attn;
pub(crate) mod prompt_data;
mod qsa_merge;
mod words;

use crate::device::Device;
use crate::error::Result;
use strata_cpu::parity::CaseReport;
pub use prompt_attn::prompt_attn_parity;
pub use qsa_merge::qsa_merge_daily_parity;
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
    Suite { name: "qsa_merge_daily_parity", about: "decode attention of four KV formats, chunk kernels and merge", run: qsa_merge_daily_parity },
    Suite { name: "prompt_attn_parity", about: "prompt attention of four KV formats", run: prompt_attn_parity },
];

/// Counts the words in which two arrays differ.
pub(crate) fn differing<T: bytemuck::Pod>(got: &[T], want: &[T]) -> u64 {
    let size = size_of::<T>().max(1);
    let (a, b) = (bytemuck::cast_slice::<T, u8>(got), bytemuck::cast_slice::<T, u8>(want));
    a.chunks(size).zip(b.chunks(size)).filter(|(x, y)| x != y).count() as u64 + got.len().abs_diff(want.len()) as u64
}
