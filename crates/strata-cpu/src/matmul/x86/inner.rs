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
}

impl Class {
    /// The class of a format.
    pub const fn of<F: Unpack>(vnni: bool) -> Class {
        let span = if F::LEN == 256 { F::SPAN } else { term::<F>() };
        let group = if vnni {
            DOT
        } else if split::<F>(vnni) {
            SPLIT
        } else {
            group::<F>()
        };
        Class { term: term::<F>(), span, group }
    }
}

/// Terms of a panel, and some activation rows that they meet.
pub(super) struct Run<'a> {
    pub panel: &'a Panel,
    /// Terms of the panel.
    pub terms: usize,
    /// Bit i: a segment ends behind term i.
    pub ends: u32,
    /// Whether the format has minima.
    pub minima: bool,
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
    ($pick:ident, $function:ident, $features:literal, $vector:ty, $shares:tt, $($term:literal $span:literal $group:tt,)*) => {
        /// The inner loops of a class, for numbers of activation rows in equal steps.
        pub(super) const fn $pick(class: Class) -> &'static [Multiply] {
            match class {
                $(Class { term: $term, span: $span, group: $group } => loops!(@ $function, $term $span $group, $shares),)*
                _ => panic!("no inner loops for this class"),
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $function<const TERM: usize, const SPAN: usize, const GROUP: usize, const T: usize>(run: &Run<'_>, chains: &mut [Chain]) {
            // SAFETY: the features are enabled here; the rest is the caller's promise.
            unsafe { run.items::<$vector, TERM, SPAN, GROUP, T>(chains) }
        }
    };
    (@ $function:ident, $term:literal $span:literal $group:tt, [$($share:literal)*]) => {
        &[$($function::<$term, $span, $group, $share>),*]
    };
}

loops! { loops_avx2, avx2, "avx2,fma", V256, [2 4],
    256 16 1, 256 16 2, 256 16 4, 256 32 1, 256 32 2, 256 32 4, 256 32 SPLIT, 32 32 2, 32 32 4, 32 32 8, 32 32 SPLIT, 16 16 4,
}
loops! { loops_avx512, avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", V512, [4 8],
    256 16 1, 256 16 2, 256 16 4, 256 32 1, 256 32 2, 256 32 4, 256 32 SPLIT, 32 32 2, 32 32 4, 32 32 8, 32 32 SPLIT, 16 16 4,
}
loops! { loops_vnni, vnni, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma", V512, [2 4 6 8],
    256 16 DOT, 256 32 DOT, 32 32 DOT, 16 16 DOT,
}

impl Run<'_> {
    /// # Safety
    /// As [`Multiply`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "rows count through several arrays")]
    unsafe fn items<V: Vector, const TERM: usize, const SPAN: usize, const GROUP: usize, const T: usize>(&self, chains: &mut [Chain]) {
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
                if self.minima {
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
                    let mut sum = [V::load(self.panel.start[term].as_ptr().add(lane).cast()); T];
                    self.term::<V, TERM, SPAN, GROUP, T>(lane, term, &codes, &mut sum);
                    let d = V::load_f(self.panel.d[term].as_ptr().add(lane));
                    let block = if TERM == 16 { term / 2 } else { term };
                    for t in 0..T {
                        let scale = V::all_f(*scales[t].add(block));
                        chain[t] = V::fma(V::mul_f(d, scale), V::float(sum[t]), chain[t]);
                    }
                    if self.minima {
                        let dmin = V::load_f(self.panel.dmin[term].as_ptr().add(lane));
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
    unsafe fn term<V: Vector, const TERM: usize, const SPAN: usize, const GROUP: usize, const T: usize>(
        &self,
        lane: usize,
        term: usize,
        acts: &[*const u8; T],
        sum: &mut [V::I; T],
    ) {
        let at = |all: &[[Line<[u8; 4]>; 8]; RUN / 32], step: usize| {
            all.as_ptr().cast::<Line<[u8; 4]>>().wrapping_add(step).cast::<u8>().wrapping_add(4 * lane)
        };
        let subs = TERM / SPAN;
        // SAFETY: the caller's promise.
        unsafe {
            for j in 0..opaque(subs) {
                let first = (term * TERM + j * SPAN) / 4;
                let scale = if TERM == 256 { V::load(self.panel.subs[term * subs + j].as_ptr().add(lane).cast()) } else { V::ones16() };
                if GROUP == DOT {
                    let mut dots = if TERM == 256 { [V::zero(); T] } else { *sum };
                    for step in first..first + SPAN / 4 {
                        let w = V::load(at(&self.panel.codes, step));
                        for t in 0..T {
                            dots[t] = V::dot(dots[t], V::four(acts[t].add(4 * step)), w);
                        }
                    }
                    for t in 0..T {
                        sum[t] = if TERM == 256 { V::add(sum[t], V::mul(dots[t], scale)) } else { dots[t] };
                    }
                } else if GROUP == SPLIT {
                    for two in 0..opaque(SPAN / 8) {
                        for step in first + 2 * two..first + 2 * two + 2 {
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
                                let p = V::pairs(V::four(acts[t].add(4 * step)), w);
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
                let mins = V::load(self.panel.mins[term * pairs + j].as_ptr().add(lane).cast());
                sum = V::add(sum, V::pairs16(mins, V::four(sums.add(2 * j).cast())));
            }
            sum
        }
    }
}

/// `n`, hidden from the compiler: it would unroll the loop, take the activation rows one after another and run out of
/// registers for the weights.
#[inline(always)]
fn opaque(mut n: usize) -> usize {
    // SAFETY: an empty instruction that only seems to change `n`.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) n, options(pure, nomem, nostack, preserves_flags)) };
    n
}
