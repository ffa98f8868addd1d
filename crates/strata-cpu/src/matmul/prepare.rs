//! Quantising activations.

use crate::pool::Pool;
use crate::simd::Simd;
use crate::versions;
use std::sync::Mutex;
use strata_ops::matmul::{ActRows, Acts};

versions! { mod fill = fill_rows; (rows: &mut ActRows<'_>, x: &[f32]) }

versions! { mod fill_second = fill_second_rows; (second: &mut ActRows<'_>, x: &[f32], first: &ActRows<'_>) }

#[inline(always)]
fn fill_second_rows(second: &mut ActRows<'_>, x: &[f32], first: &ActRows<'_>) {
    second.fill_second_order(x, first);
}

/// [`prepare`] of `n` rows, and their second order in the `n` rows after them.
///
/// # Panics
/// If `x` has another size or `acts` has no space for `2 n` rows.
pub fn prepare_two_orders(pool: &Pool, simd: Simd, x: &[f32], n: usize, acts: &mut Acts) {
    prepare(pool, simd, x, n, acts);
    let (first, mut second) = acts.rows_mut(2 * n).split_at(n);
    // SAFETY: `simd` is a level of this CPU, as everywhere in this crate.
    unsafe { fill_second::pick(simd)(&mut second, x, &first) };
}

#[inline(always)]
fn fill_rows(rows: &mut ActRows<'_>, x: &[f32]) {
    rows.fill(x);
}

/// The rows' form of a level.
fn pick_fill(simd: Simd) -> fill::Kernel {
    #[cfg(target_arch = "x86_64")]
    if simd != Simd::Scalar {
        return super::x86::fill_avx2;
    }
    fill::pick(simd)
}

/// Fewer values than this are not worth waking the pool for.
const SMALL: usize = 32 * 1024;
/// Parts a big job is cut into at most.
const MAX_PARTS: usize = 32;

/// Writes the `n` rows of `x` (`[n, cols]`) into `acts`, in every form it holds.
///
/// # Panics
/// If `x` has another size or `acts` has no space for `n` rows.
pub fn prepare(pool: &Pool, simd: Simd, x: &[f32], n: usize, acts: &mut Acts) {
    let cols = acts.cols();
    assert_eq!(x.len(), n * cols, "{n} rows of {cols} activations");
    let fill = pick_fill(simd);
    let parts = (x.len() / (SMALL / 2)).min(pool.threads() * 2).min(MAX_PARTS).min(n);
    if x.len() < SMALL || pool.threads() == 1 || parts < 2 {
        // SAFETY: `simd` is a level of this CPU, as everywhere in this crate.
        unsafe { fill(&mut acts.rows_mut(n), x) };
        return;
    }
    let mut rest = Some(acts.rows_mut(n));
    let rows: [Mutex<Option<ActRows<'_>>>; MAX_PARTS] = std::array::from_fn(|p| {
        let part = rest.take().filter(|_| p < parts).map(|all| {
            let (part, others) = all.split_at(n * (p + 1) / parts - n * p / parts);
            rest = Some(others);
            part
        });
        Mutex::new(part)
    });
    pool.run(parts, &|p, _| {
        let part = rows[p].lock().unwrap_or_else(|e| e.into_inner()).take();
        let mut part = part.expect("a task runs once");
        // SAFETY: as above.
        unsafe { fill(&mut part, &x[n * p / parts * cols..n * (p + 1) / parts * cols]) };
    });
}
