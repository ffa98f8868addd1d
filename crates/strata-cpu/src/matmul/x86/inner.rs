//! The inner loops of products with panels: some activation rows times sixteen weight rows.
//!
//! They depend on a few facts of a format, its [`Class`], so that formats share them.

use super::gemm::Chain;
use super::panel::{LANES, Line, Panel, RUN, group, split, term};
use super::unpack::Unpack;
use super::vector::{V256, V512, Vector};
use strata_ops::matmul::Acts;

/// Activation rows that share a load of weights at most.
pub(super) const MOST: usize = 8;

/// [`Class::group`] of codes in magnitudes and signs.
pub(super) const SPLIT: usize = 0;
/// [`Class::group`] where an instruction sums four products in 32 bits.
pub(super) const DOT: usize = 32;

/// What inner loops have to know of a format at a level.
#[derive(Clone, Copy)]
pub(super) struct Class {
    /// Columns of a float term.
    pub term: usize,
    /// Columns of a sub-scale.
    pub span: usize,
    /// Steps whose pairs of products sum in 16 bits, or [`SPLIT`] or [`DOT`].
    pub group: usize,
    /// Whether there are minima; the codes of such formats are unsigned, so the activations need not be.
    pub minima: bool,
}

impl Class {
    /// The class of a format.
    pub const fn of<F: Unpack>(vnni: bool) -> Class {
        assert!(F::MAX_MIN == 0 || !F::SIGNED && F::OFFSET == 0, "codes of formats with minima are unsigned");
        let span = if F::LEN == 256 { F::SPAN } else { term::<F>() };
        let group = if vnni {
            DOT
        } else if split::<F>(vnni) {
            SPLIT
        } else {
            group::<F>()
        };
        Class { term: term::<F>(), span, group, minima: F::MAX_MIN > 0 }
    }

    /// Whether the activations are raised by 128, to be the unsigned ones.
    pub const fn raised(self) -> bool {
        !self.minima && self.group != SPLIT
    }
}

/// Terms of a panel, and some activation rows that they meet.
pub(super) struct Run<'a> {
    pub panel: &'a Panel,
    /// Terms of the panel.
    pub terms: usize,
    /// Bit i: a segment ends behind term i.
    pub ends: u32,
    pub acts: &'a Acts,
    /// Rows of `acts`, and the last one that is different.
    pub rows: [usize; MOST],
    pub last: usize,
    /// The first row's copied codes of the panel's columns, and the bytes from row to row.
    pub codes: *const u8,
    pub cols: usize,
    /// The same of the sums of 32 codes.
    pub sums: *const i16,
    pub sums_each: usize,
    /// The panel's first column.
    pub first: usize,
}

/// Continues the chains of as many activation rows as the function is for.
///
/// # Safety
/// The CPU has the function's level; the run's class is the function's; the panel, the copies and the activations have the
/// terms, and there is a chain for every row.
pub(super) type Multiply = unsafe fn(&Run<'_>, &mut [Chain]);

/// Functions for the inner loops of classes at a level.
macro_rules! loops {
    ($pick:ident, $function:ident, $features:literal, $vector:ty, $shares:tt, $($term:literal $span:literal $group:tt $minima:literal,)*) => {
        /// The inner loops of a class, for numbers of activation rows in equal steps.
        pub(super) const fn $pick(class: Class) -> &'static [Multiply] {
            match class {
                $(Class { term: $term, span: $span, group: $group, minima: $minima } => {
                    loops!(@ $function, $term $span $group $minima, $shares)
                })*
                _ => panic!("no inner loops for this class"),
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $function<const TERM: usize, const SPAN: usize, const GROUP: usize, const MINIMA: bool, const T: usize>(
            run: &Run<'_>,
            chains: &mut [Chain],
        ) {
            // SAFETY: the features are enabled here; the rest is the caller's promise.
            unsafe { run.items::<$vector, TERM, SPAN, GROUP, MINIMA, T>(chains) }
        }
    };
    (@ $function:ident, $term:literal $span:literal $group:tt $minima:literal, [$($share:literal)*]) => {
        &[$($function::<$term, $span, $group, $minima, $share>),*]
    };
}

loops! { loops_avx2, avx2, "avx2,fma", V256, [2 4],
    256 16 1 false, 256 16 2 false, 256 16 4 false, 256 32 1 false, 256 32 4 false, 256 32 SPLIT false,
    32 32 4 false, 32 32 8 false, 32 32 SPLIT false, 16 16 4 false,
    256 16 4 true, 256 32 4 true, 32 32 4 true,
}
loops! { loops_avx512, avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", V512, [4 8],
    256 16 1 false, 256 16 2 false, 256 16 4 false, 256 32 1 false, 256 32 4 false, 256 32 SPLIT false,
    32 32 4 false, 32 32 8 false, 32 32 SPLIT false, 16 16 4 false,
    256 16 4 true, 256 32 4 true, 32 32 4 true,
}
loops! { loops_vnni, vnni, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma", V512, [2 4 6 8],
    256 16 DOT false, 256 32 DOT false, 32 32 DOT false, 16 16 DOT false, 256 16 DOT true, 256 32 DOT true, 32 32 DOT true,
}

impl Run<'_> {
    /// # Safety
    /// As [`Multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "rows count through several arrays")]
    unsafe fn items<V: Vector, const TERM: usize, const SPAN: usize, const GROUP: usize, const MINIMA: bool, const T: usize>(
        &self,
        chains: &mut [Chain],
    ) {
        let chains: &mut [Chain; T] = chains.first_chunk_mut().expect("a chain for every row");
        // SAFETY: the caller's promise.
        unsafe {
            let mut codes = [self.codes; T];
            let mut sums = [self.sums; T];
            let mut scales = [std::ptr::null(); T];
            for t in 0..T {
                codes[t] = self.codes.add(t.min(self.last) * self.cols);
                if TERM == 256 {
                    scales[t] = self.acts.scales256(self.rows[t]).as_ptr().add(self.first / 256);
                } else {
                    scales[t] = self.acts.scales32(self.rows[t]).as_ptr().add(self.first / 32);
                }
                if MINIMA {
                    sums[t] = match (TERM, SPAN) {
                        (256, 16) => self.acts.sums256(self.rows[t]).as_ptr().add(self.first / 16),
                        (256, _) => self.sums.add(t.min(self.last) * self.sums_each),
                        _ => self.acts.sums32(self.rows[t]).as_ptr().add(self.first / 32).cast(),
                    };
                }
            }
            for part in 0..opaque(V::PARTS) {
                let lane = part * (LANES / V::PARTS);
                let mut chain = [V::all_f(0.0); T];
                for t in 0..T {
                    chain[t] = V::load_f(chains[t].chain.as_ptr().add(lane));
                }
                for term in 0..opaque(self.terms) {
                    let start = if MINIMA { V::zero() } else { V::load(line(&self.panel.start, term, lane)) };
                    let mut sum = [start; T];
                    self.term::<V, TERM, SPAN, GROUP, MINIMA, T>(lane, term, &codes, &mut sum);
                    let d = V::load_f(line(&self.panel.d, term, lane).cast());
                    let block = if TERM == 16 { term / 2 } else { term };
                    for t in 0..T {
                        let scale = V::all_f(*scales[t].add(block));
                        chain[t] = V::fma(V::mul_f(d, scale), V::float(sum[t]), chain[t]);
                    }
                    if MINIMA {
                        let dmin = V::load_f(line(&self.panel.dmin, term, lane).cast());
                        for t in 0..T {
                            let scale = V::all_f(*scales[t].add(block));
                            let sum = if TERM == 256 {
                                V::float(self.minima::<V, SPAN>(lane, term, sums[t].add(term * (256 / SPAN))))
                            } else {
                                V::all_f(*sums[t].cast::<i32>().add(block) as f32)
                            };
                            chain[t] = V::fnma(V::mul_f(dmin, scale), sum, chain[t]);
                        }
                    }
                    if self.ends >> term & 1 == 1 {
                        for t in 0..T {
                            let total = chains[t].total.as_mut_ptr().add(lane);
                            V::store_f(total, V::add_f(V::load_f(total), chain[t]));
                            chain[t] = V::all_f(0.0);
                        }
                    }
                }
                for t in 0..T {
                    V::store_f(chains[t].chain.as_mut_ptr().add(lane), chain[t]);
                }
            }
        }
    }

    /// Adds the integer products of term `term`, sub-scales included.
    ///
    /// # Safety
    /// As [`Multiply`]; `acts` are the rows' copied codes.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "rows count through several arrays")]
    unsafe fn term<V: Vector, const TERM: usize, const SPAN: usize, const GROUP: usize, const MINIMA: bool, const T: usize>(
        &self,
        lane: usize,
        term: usize,
        acts: &[*const u8; T],
        sum: &mut [V::I; T],
    ) {
        let at = |all: &[[Line<[u8; 4]>; 8]; RUN / 32], step: usize| line(all.as_flattened(), step, lane);
        let subs = TERM / SPAN;
        // SAFETY: the caller's promise.
        unsafe {
            for j in 0..opaque(subs) {
                let first = (term * TERM + j * SPAN) / 4;
                let scale = if TERM == 256 { V::load(line(&self.panel.subs, term * subs + j, lane)) } else { V::ones16() };
                if GROUP == DOT {
                    let mut dots = if TERM == 256 { [V::zero(); T] } else { *sum };
                    for i in 0..SPAN / 4 {
                        let step = first + i;
                        let w = V::load(at(&self.panel.codes, step));
                        for t in 0..T {
                            let a = V::four(acts[t].add(4 * step));
                            dots[t] = if MINIMA { V::dot(dots[t], w, a) } else { V::dot(dots[t], a, w) };
                        }
                    }
                    for t in 0..T {
                        sum[t] = if TERM == 256 { V::add(sum[t], V::mul(dots[t], scale)) } else { dots[t] };
                    }
                } else if GROUP == SPLIT {
                    for four in 0..opaque(SPAN / 16) {
                        for i in 0..4 {
                            let step = first + 4 * four + i;
                            let w = V::load(at(&self.panel.codes, step));
                            let n = V::load(at(&self.panel.negative, step));
                            for t in 0..T {
                                let a = V::xor(V::four(acts[t].add(4 * step)), n);
                                sum[t] = V::add(sum[t], V::pairs16(V::pairs(w, a), scale));
                            }
                        }
                    }
                } else {
                    let mut pairs = [V::zero(); T];
                    for four in 0..opaque(SPAN / 16) {
                        for i in 0..4 {
                            let step = first + 4 * four + i;
                            let w = V::load(at(&self.panel.codes, step));
                            for t in 0..T {
                                let a = V::four(acts[t].add(4 * step));
                                let p = if MINIMA { V::pairs(w, a) } else { V::pairs(a, w) };
                                pairs[t] = if GROUP <= 4 && i % GROUP == 0 { p } else { V::add16(pairs[t], p) };
                                if GROUP <= 4 && (i + 1) % GROUP == 0 {
                                    sum[t] = V::add(sum[t], V::pairs16(pairs[t], scale));
                                }
                            }
                        }
                    }
                    if GROUP > 4 {
                        for t in 0..T {
                            sum[t] = V::add(sum[t], V::pairs16(pairs[t], scale));
                        }
                    }
                }
            }
        }
    }

    /// The sums of minima times activations of term `term`; `sums` are those of its activations, of a sub-block each.
    ///
    /// # Safety
    /// As [`Multiply`]; as many numbers behind `sums` as there are sub-blocks.
    #[inline(always)]
    unsafe fn minima<V: Vector, const SPAN: usize>(&self, lane: usize, term: usize, sums: *const i16) -> V::I {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sum = V::zero();
            let pairs = 128 / SPAN;
            for j in 0..pairs {
                let mins = V::load(line(&self.panel.mins, term * pairs + j, lane));
                sum = V::add(sum, V::pairs16(mins, V::four(sums.add(2 * j).cast())));
            }
            sum
        }
    }
}

/// Where the lanes from `lane` on of line `n` are. (Without a check: the loops are not to have one.)
#[inline(always)]
fn line<T>(lines: &[Line<T>], n: usize, lane: usize) -> *const u8 {
    const { assert!(size_of::<T>() == 4) };
    lines.as_ptr().wrapping_add(n).cast::<u8>().wrapping_add(4 * lane)
}

/// `n`, hidden from the compiler: it would unroll the loop, take the activation rows one after another and run out of
/// registers for the weights.
#[inline(always)]
pub(super) fn opaque(mut n: usize) -> usize {
    // SAFETY: an empty instruction that only seems to change `n`.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) n, options(pure, nomem, nostack, preserves_flags)) };
    n
}
