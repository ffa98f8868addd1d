//! Cache rows sent for before they are read: those of selected blocks lie apart, so that the hardware does not foresee them.

use strata_ops::qsa::kv::{KvRows, Rows};
use strata_ops::qsa::{HEAD_DIM, Q4_ROW};

/// The rows of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    kv: &'a KvRows<'a>,
    rows: &'a [usize],
}

impl<'a> Ahead<'a> {
    /// Rows that [`Ahead::send`] sends for.
    pub const EACH: usize = 8;

    /// The first keys are sent for at once.
    #[inline(always)]
    pub fn new(kv: &'a KvRows<'a>, rows: &'a [usize]) -> Self {
        rows.iter().take(Self::EACH).for_each(|r| send_row(&kv.k, *r));
        Ahead { kv, rows }
    }

    /// While keys `c..c + 8` are worked on: sends for their values and for the next keys.
    #[inline(always)]
    pub fn send(self, c: usize) {
        let after = |from: usize| self.rows.iter().skip(from).take(Self::EACH);
        after(c).for_each(|r| send_row(&self.kv.v, *r));
        after(c + Self::EACH).for_each(|r| send_row(&self.kv.k, *r));
    }
}

#[inline(always)]
fn send_row(rows: &Rows<'_>, row: usize) {
    match rows {
        Rows::F32(x) => send(x, row, HEAD_DIM),
        Rows::F16(x) => send(x, row, HEAD_DIM),
        Rows::Int8 { codes, .. } => send(codes, row, HEAD_DIM),
        Rows::Q4_0(x) => send(x, row, Q4_ROW),
    }
}

/// Sends for the lines of row `row` of `width` items.
#[inline(always)]
fn send<T>(all: &[T], row: usize, width: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = all.as_ptr().wrapping_add(row * width).cast::<i8>();
        let first = at.wrapping_sub(at as usize % 64);
        for line in 0..(at as usize % 64 + width * size_of::<T>()).div_ceil(64) {
            // SAFETY: a prefetch may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64 * line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (all, row, width);
}
