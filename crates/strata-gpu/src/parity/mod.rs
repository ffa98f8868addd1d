//! Exactness suites: every kernel against the CPU's definition, by bits.

mod qsa_topk;
mod words;

use crate::device::Device;
use crate::error::Result;
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
    Suite { name: "qsa_topk_active_parity", about: "ids of the block top-k, every kernel and the dispatch", run: qsa_topk_active_parity },
];

/// Counts the words in which two arrays differ.
pub(crate) fn differing<T: bytemuck::Pod>(got: &[T], want: &[T]) -> u64 {
    let size = size_of::<T>().max(1);
    let (a, b) = (bytemuck::cast_slice::<T, u8>(got), bytemuck::cast_slice::<T, u8>(want));
    a.chunks(size).zip(b.chunks(size)).filter(|(x, y)| x != y).count() as u64 + got.len().abs_diff(want.len()) as u64
}
