//! Many activation rows: panels of sixteen weight rows meet all of them.
//!
//! The activations of a tile are copied for it, as the products want them, a slab of columns at a time that stays in the second
//! cache; a panel, a few hundred columns of sixteen rows, stays in the first. Chains go on from panel to panel.

use super::super::Matrix;
use super::super::kernel::Tile;
use super::panel::{LANES, Line, Panel, RUN, group, split, term};
use super::unpack::{Blocks, ROWS, Unpack};
use super::vector::Vector;
use std::mem::MaybeUninit;
use std::ops::Range;
use strata_ops::matmul::{CHAINS_NARROW, CHAINS_WIDE, segment};

/// Bytes of activations that are copied together.
const SLAB: usize = 160 * 1024;
/// Rows wider than this are worked through in slabs of [`CUT`] columns, which whole blocks of every format divide.
const WHOLE: usize = 4096;
const CUT: usize = 2048;
/// Activation rows that are worked on together.
const ITEMS: usize = 128;
/// Groups of [`LANES`] weight rows whose chains are kept from slab to slab.
const GROUPS: usize = 4;

/// Working memory, a thread's stack has it.
#[repr(C, align(64))]
struct Scratch {
    acts: [u8; SLAB],
    /// Of 256-wide formats with minima for 32 columns each: sums of their activations, eight a block.
    sums: [[i16; 8]; SLAB / 256],
    panel: Panel,
    chains: [[Chain; ITEMS]; GROUPS],
}

/// The present chain of an activation row with [`LANES`] weight rows, and the sum of those before.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chain {
    chain: Line<f32>,
    total: Line<f32>,
}

/// # Safety
/// AVX2, FMA, F16C and those of `V` (AVX-512 VNNI for `VNNI`); the matrix has eight rows; otherwise as a [`super::super::kernel::Kernel`].
#[inline(always)]
pub(super) unsafe fn run<F: Unpack, V: Vector, const VNNI: bool>(w: &Matrix, tile: &Tile<'_>) {
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    // SAFETY: bytes, integers and floats: every bit pattern is a value, and none is read before it is written here.
    let scratch = unsafe { &mut *scratch.as_mut_ptr() };
    let blocks = w.cols / F::LEN;
    let slab = if w.cols <= WHOLE { blocks.max(1) } else { CUT / F::LEN };
    let items_each = (SLAB / (slab * F::LEN)).min(ITEMS);
    // chains outlive a slab only if there are several
    let rows_each = if slab >= blocks { LANES } else { GROUPS * LANES };
    for first in tile.items.clone().step_by(items_each) {
        let items = first..(first + items_each).min(tile.items.end);
        for (n, r) in tile.rows.clone().step_by(rows_each).enumerate() {
            let rows = r..(r + rows_each).min(tile.rows.end);
            let groups = rows.len().div_ceil(LANES);
            for chains in &mut scratch.chains[..groups] {
                chains[..items.len()].fill(Chain { chain: [0.0; LANES], total: [0.0; LANES] });
            }
            for s in (0..blocks).step_by(slab) {
                let span = s..(s + slab).min(blocks);
                let job = Job::<'_, F> { tile, items: items.clone(), span, blocks, _format: std::marker::PhantomData };
                // SAFETY: the caller's promise.
                unsafe {
                    if n == 0 || slab < blocks {
                        job.copy_acts::<VNNI>(&mut scratch.acts, &mut scratch.sums);
                    }
                    for (g, chains) in scratch.chains[..groups].iter_mut().enumerate() {
                        let half = |h: usize| Blocks { first: w.row(first_row(w, r + g * LANES + h * ROWS)).as_ptr(), stride: w.row_bytes };
                        job.multiply::<V, VNNI>([half(0), half(1)], &scratch.acts, &scratch.sums, &mut scratch.panel, chains);
                    }
                }
            }
            for (g, chains) in scratch.chains[..groups].iter().enumerate() {
                for (h, row) in [0, ROWS].into_iter().map(|h| (h, r + g * LANES + h)).filter(|(_, row)| *row < rows.end) {
                    for (chain, i) in chains.iter().zip(items.clone()) {
                        // SAFETY: the caller's promise.
                        unsafe { tile.store(i, first_row(w, row), &chain.total[h..h + ROWS]) };
                    }
                }
            }
        }
    }
}

/// The first of the eight rows that are taken for those from `r` on: the last ones overlap those before, which is harmless.
#[inline(always)]
fn first_row(w: &Matrix, r: usize) -> usize {
    r.min(w.rows - ROWS)
}

/// Blocks `span` of every row, for some items.
struct Job<'a, F> {
    tile: &'a Tile<'a>,
    items: Range<usize>,
    span: Range<usize>,
    /// Blocks of a whole row.
    blocks: usize,
    _format: std::marker::PhantomData<F>,
}

impl<F: Unpack> Job<'_, F> {
    /// Copies the items' codes, one item after another: raised by 128 where they are the unsigned side of products.
    ///
    /// # Safety
    /// As [`run`].
    #[inline(always)]
    unsafe fn copy_acts<const VNNI: bool>(&self, to: &mut [u8; SLAB], sums: &mut [[i16; 8]; SLAB / 256]) {
        if F::LEN == 256 && F::MAX_MIN > 0 && F::SPAN == 32 {
            for (sums, i) in sums.chunks_exact_mut(self.span.len()).zip(self.items.clone()) {
                let pairs = self.tile.acts.sums256(self.tile.act_rows.get(i)).as_chunks::<2>().0.as_chunks::<8>().0;
                for (sums, pairs) in sums.iter_mut().zip(&pairs[self.span.clone()]) {
                    *sums = std::array::from_fn(|j| pairs[j][0] + pairs[j][1]);
                }
            }
        }
        let len = self.span.len() * F::LEN;
        let up = if split::<F>(VNNI) { 0 } else { 0x80 };
        for (to, i) in to.chunks_exact_mut(len).zip(self.items.clone()) {
            let t = self.tile.act_rows.get(i);
            let codes = if F::LEN == 256 { self.tile.acts.codes256(t) } else { self.tile.acts.codes32(t) };
            for (to, from) in to.iter_mut().zip(&codes[self.span.start * F::LEN..][..len]) {
                *to = *from as u8 ^ up;
            }
        }
    }

    /// Continues the chains of the items with sixteen rows.
    ///
    /// # Safety
    /// As [`run`]; `acts` has what [`Job::copy_acts`] wrote.
    #[inline(always)]
    unsafe fn multiply<V: Vector, const VNNI: bool>(
        &self,
        halves: [Blocks; 2],
        acts: &[u8; SLAB],
        sums: &[[i16; 8]; SLAB / 256],
        panel: &mut Panel,
        chains: &mut [Chain; ITEMS],
    ) {
        let count = if F::LEN == 256 { CHAINS_WIDE } else { CHAINS_NARROW };
        let n = self.items.len();
        for s in self.span.clone().step_by(RUN / F::LEN) {
            let part = s..(s + RUN / F::LEN).min(self.span.end);
            // bit i: a segment ends behind block i of the part
            let ends = (0..count).map(|c| segment(c, self.blocks, count).end).filter(|e| *e > part.start && *e <= part.end);
            let ends = ends.fold(0u32, |bits, e| bits | 1 << (e - part.start - 1));
            // SAFETY: the caller's promise.
            unsafe {
                for (half, rows) in halves.into_iter().enumerate() {
                    panel.fill::<F, VNNI>(rows.after(s * size_of::<F::Bytes>()), half, part.len());
                }
                let mut at = 0;
                while at < n {
                    let share = (n - at).div_ceil((n - at).div_ceil(V::SHARE));
                    for half in 0..V::PARTS {
                        let run = Run { job: self, panel, acts, sums, part: part.clone(), ends, half, at };
                        let chains = &mut chains[at..at + share];
                        match share {
                            1 => run.items::<V, VNNI, 1>(chains),
                            2 => run.items::<V, VNNI, 2>(chains),
                            3 => run.items::<V, VNNI, 3>(chains),
                            4 => run.items::<V, VNNI, 4>(chains),
                            5 if V::SHARE > 4 => run.items::<V, VNNI, 5>(chains),
                            6 if V::SHARE > 4 => run.items::<V, VNNI, 6>(chains),
                            7 if V::SHARE > 4 => run.items::<V, VNNI, 7>(chains),
                            8 if V::SHARE > 4 => run.items::<V, VNNI, 8>(chains),
                            _ => unreachable!("shares have up to SHARE items"),
                        }
                    }
                    at += share;
                }
            }
        }
    }
}

/// A panel and some items.
struct Run<'a, F> {
    job: &'a Job<'a, F>,
    panel: &'a Panel,
    acts: &'a [u8; SLAB],
    sums: &'a [[i16; 8]; SLAB / 256],
    /// Blocks of the panel.
    part: Range<usize>,
    ends: u32,
    /// The vector of the sixteen lanes.
    half: usize,
    /// The first item, counted from the job's first.
    at: usize,
}

impl<F: Unpack> Run<'_, F> {
    /// # Safety
    /// As [`run`]; the job has `T` items from `at` on, whose chains are `chains`.
    #[inline(always)]
    unsafe fn items<V: Vector, const VNNI: bool, const T: usize>(&self, chains: &mut [Chain]) {
        let chains: &mut [Chain; T] = chains.first_chunk_mut().expect("a place for every item");
        let len = self.job.span.len() * F::LEN;
        let offset = (self.part.start - self.job.span.start) * F::LEN;
        let acts = self.job.tile.acts;
        let rows: [usize; T] = std::array::from_fn(|t| self.job.tile.act_rows.get(self.job.items.start + self.at + t));
        let codes: [*const u8; T] = std::array::from_fn(|t| self.acts[(self.at + t) * len + offset..].as_ptr());
        let lane = self.half * LANES / V::PARTS;
        let terms = F::LEN / term::<F>();
        // SAFETY: the caller's promise: the panel and the copy have the part's blocks, the activations all blocks of a row.
        unsafe {
            let mut chain = [V::all_f(0.0); T];
            for t in 0..T {
                chain[t] = V::load_f(chains[t].chain.as_ptr().add(lane));
            }
            let scales = rows.map(|r| if F::LEN == 256 { acts.scales256(r).as_ptr() } else { acts.scales32(r).as_ptr() });
            for s in 0..opaque(self.part.len()) {
                for x in 0..terms {
                    let term = s * terms + x;
                    let isum = if F::LEN == 256 {
                        self.wide::<V, VNNI, T>(lane, s, codes.map(|c| c.add(s * 256)))
                    } else {
                        self.narrow::<V, VNNI, T>(lane, term, codes)
                    };
                    let d = V::load_f(self.panel.d[term].as_ptr().add(lane));
                    // which of the activations' blocks
                    let block =
                        if F::LEN == 256 { self.part.start + s } else { (self.part.start * F::LEN + term * self::term::<F>()) / 32 };
                    for t in 0..T {
                        let scale = V::all_f(*scales[t].add(block));
                        chain[t] = V::fma(V::mul_f(d, scale), V::float(isum[t]), chain[t]);
                        if F::MAX_MIN > 0 {
                            let dmin = V::mul_f(V::load_f(self.panel.dmin[term].as_ptr().add(lane)), scale);
                            let msum = if F::LEN == 256 {
                                let wide = &self.sums[(self.at + t) * self.job.span.len() + block - self.job.span.start];
                                let sums = if F::SPAN == 16 { acts.sums256(rows[t]).as_ptr().add(block * 16) } else { wide.as_ptr() };
                                V::float(self.minima::<V>(lane, s, sums))
                            } else {
                                V::all_f(*acts.sums32(rows[t]).as_ptr().add(block) as f32)
                            };
                            chain[t] = V::fnma(dmin, msum, chain[t]);
                        }
                    }
                }
                if self.ends >> s & 1 == 1 {
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

    /// The integer sums of block `s` of the part, sub-scales included.
    ///
    /// # Safety
    /// As [`Run::items`]; 256 codes behind each of `acts`.
    #[inline(always)]
    unsafe fn wide<V: Vector, const VNNI: bool, const T: usize>(&self, lane: usize, s: usize, acts: [*const u8; T]) -> [V::I; T] {
        let subs = 256 / F::SPAN;
        // SAFETY: the caller's promise.
        unsafe {
            let mut sum = [V::load(self.panel.start[s].as_ptr().add(lane).cast()); T];
            for j in 0..opaque(subs) {
                let scale = V::load(self.panel.subs[s * subs + j].as_ptr().add(lane).cast());
                let first = (s * 256 + j * F::SPAN) / 4;
                sum = self.steps::<V, VNNI, T>(lane, first, acts.map(|a| a.add(j * F::SPAN)), F::SPAN / 4, scale, sum);
            }
            sum
        }
    }

    /// The integer sums of a term of the part.
    ///
    /// # Safety
    /// As [`Run::items`].
    #[inline(always)]
    unsafe fn narrow<V: Vector, const VNNI: bool, const T: usize>(&self, lane: usize, term: usize, acts: [*const u8; T]) -> [V::I; T] {
        let len = self::term::<F>();
        // SAFETY: the caller's promise.
        unsafe {
            let sum = [V::load(self.panel.start[term].as_ptr().add(lane).cast()); T];
            self.steps::<V, VNNI, T>(lane, term * len / 4, acts.map(|a| a.add(term * len)), len / 4, V::ones16(), sum)
        }
    }

    /// `sum` plus `scale` times the products of `count` steps of the panel from `first` on.
    ///
    /// # Safety
    /// As [`Run::items`]; `4 count` codes behind each of `acts`.
    #[inline(always)]
    unsafe fn steps<V: Vector, const VNNI: bool, const T: usize>(
        &self,
        lane: usize,
        first: usize,
        acts: [*const u8; T],
        count: usize,
        scale: V::I,
        mut sum: [V::I; T],
    ) -> [V::I; T] {
        let at = |all: &[[Line<[u8; 4]>; 8]; RUN / 32], step: usize| {
            all.as_ptr().cast::<Line<[u8; 4]>>().wrapping_add(step).cast::<u8>().wrapping_add(4 * lane)
        };
        // SAFETY: the caller's promise.
        unsafe {
            if VNNI {
                let mut dots = if F::LEN == 256 { [V::zero(); T] } else { sum };
                for step in 0..count {
                    let w = V::load(at(&self.panel.codes, first + step));
                    for t in 0..T {
                        dots[t] = V::dot(dots[t], V::four(acts[t].add(4 * step)), w);
                    }
                }
                if F::LEN < 256 {
                    return dots;
                }
                for t in 0..T {
                    sum[t] = V::add(sum[t], V::mul(dots[t], scale));
                }
                return sum;
            }
            if split::<F>(VNNI) {
                for two in 0..opaque(count / 2) {
                    for step in [2 * two, 2 * two + 1] {
                        let w = V::load(at(&self.panel.codes, first + step));
                        let n = V::load(at(&self.panel.negative, first + step));
                        for t in 0..T {
                            let a = V::xor(V::four(acts[t].add(4 * step)), n);
                            sum[t] = V::add(sum[t], V::pairs16(V::pairs(w, a), scale));
                        }
                    }
                }
                return sum;
            }
            let mut pairs = [V::zero(); T];
            for four in 0..opaque(count / 4) {
                for step in 4 * four..4 * four + 4 {
                    let w = V::load(at(&self.panel.codes, first + step));
                    for t in 0..T {
                        let p = V::pairs(V::four(acts[t].add(4 * step)), w);
                        pairs[t] = if group::<F>() <= 4 && step % group::<F>() == 0 { p } else { V::add16(pairs[t], p) };
                        if group::<F>() <= 4 && (step + 1) % group::<F>() == 0 {
                            sum[t] = V::add(sum[t], V::pairs16(pairs[t], scale));
                        }
                    }
                }
            }
            if group::<F>() > 4 {
                for t in 0..T {
                    sum[t] = V::add(sum[t], V::pairs16(pairs[t], scale));
                }
            }
            sum
        }
    }

    /// The sums of minima times activations of block `s`; `sums` are those of its activations, of a sub-block each.
    ///
    /// # Safety
    /// As [`Run::items`]; as many numbers behind `sums` as there are sub-blocks.
    #[inline(always)]
    unsafe fn minima<V: Vector>(&self, lane: usize, s: usize, sums: *const i16) -> V::I {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sum = V::zero();
            let pairs = 128 / F::SPAN;
            for j in 0..pairs {
                let mins = V::load(self.panel.mins[s * pairs + j].as_ptr().add(lane).cast());
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
