//! Many activation rows: panels of sixteen weight rows meet all of them.
//!
//! The activations of a tile are copied for it, as the products want them, a slab of columns at a time that stays in the second
//! cache; a panel, a few hundred columns of sixteen rows, stays in the first. Chains go on from panel to panel.

use super::super::Matrix;
use super::super::kernel::Tile;
use super::inner::{Class, MOST, Multiply, Run, loops_avx2, loops_avx512, loops_vnni};
use super::panel::{Fill, LANES, Line, Panel, RUN, fill_avx2, fill_vnni};
use super::unpack::{Blocks, ROWS, Unpack};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
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
    /// Some more than items, since shares of them may be filled up.
    chains: [[Chain; ITEMS + MOST]; GROUPS],
}

/// The present chain of an activation row with [`LANES`] weight rows, and the sum of those before.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Chain {
    pub chain: Line<f32>,
    pub total: Line<f32>,
}

/// What has to be known of a format at a level.
pub(super) struct Form {
    len: usize,
    bytes: usize,
    class: Class,
    fill: Fill,
    /// The inner loops for `step`, `2 step`, ... activation rows.
    multiply: &'static [Multiply],
    step: usize,
}

impl Form {
    pub const fn avx2<F: Unpack>() -> Form {
        Form::of::<F>(2, Class::of::<F>(false), fill_avx2::<F>, loops_avx2(Class::of::<F>(false)))
    }

    pub const fn avx512<F: Unpack>() -> Form {
        Form::of::<F>(4, Class::of::<F>(false), fill_avx2::<F>, loops_avx512(Class::of::<F>(false)))
    }

    pub const fn vnni<F: Unpack>() -> Form {
        Form::of::<F>(2, Class::of::<F>(true), fill_vnni::<F>, loops_vnni(Class::of::<F>(true)))
    }

    const fn of<F: Unpack>(step: usize, class: Class, fill: Fill, multiply: &'static [Multiply]) -> Form {
        Form { len: F::LEN, bytes: size_of::<F::Bytes>(), class, fill, multiply, step }
    }
}

/// # Safety
/// The CPU has the form's level; the matrix has the form's format and eight rows; otherwise as a [`super::super::kernel::Kernel`].
pub(super) unsafe fn run(w: &Matrix, tile: &Tile<'_>, form: &Form) {
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    // SAFETY: bytes, integers and floats: every bit pattern is a value, and none is read before it is written here.
    let scratch = unsafe { &mut *scratch.as_mut_ptr() };
    let blocks = w.cols / form.len;
    let slab = if w.cols <= WHOLE { blocks.max(1) } else { CUT / form.len };
    let items_each = (SLAB / (slab * form.len)).min(ITEMS);
    // chains outlive a slab only if there are several
    let rows_each = if slab >= blocks { LANES } else { GROUPS * LANES };
    for first in tile.items.clone().step_by(items_each) {
        let items = first..(first + items_each).min(tile.items.end);
        for (n, r) in tile.rows.clone().step_by(rows_each).enumerate() {
            let rows = r..(r + rows_each).min(tile.rows.end);
            let groups = rows.len().div_ceil(LANES);
            for chains in &mut scratch.chains[..groups] {
                chains[..items.len() + MOST].fill(Chain { chain: [0.0; LANES], total: [0.0; LANES] });
            }
            for s in (0..blocks).step_by(slab) {
                let span = s..(s + slab).min(blocks);
                let job = Job { form, tile, items: items.clone(), span, blocks };
                // SAFETY: the caller's promise.
                unsafe {
                    if n == 0 || slab < blocks {
                        job.copy_acts(&mut scratch.acts, &mut scratch.sums);
                    }
                    for (g, chains) in scratch.chains[..groups].iter_mut().enumerate() {
                        let half = |h: usize| Blocks { first: w.row(first_row(w, r + g * LANES + h * ROWS)).as_ptr(), stride: w.row_bytes };
                        job.multiply([half(0), half(1)], &scratch.acts, &scratch.sums, &mut scratch.panel, chains);
                    }
                }
            }
            for (g, chains) in scratch.chains[..groups].iter().enumerate() {
                for (h, row) in [0, ROWS].into_iter().map(|h| (h, r + g * LANES + h)).filter(|(_, row)| *row < rows.end) {
                    for (chain, i) in chains.iter().zip(items.clone()) {
                        // SAFETY: the caller's promise.
                        unsafe {
                            tile.store::<ROWS>(i, first_row(w, row), chain.total[h..].first_chunk().expect("eight lanes of sixteen"))
                        };
                    }
                }
            }
        }
    }
}

/// The first of the eight rows that are taken for those from `r` on: the last ones overlap those before, which is harmless.
fn first_row(w: &Matrix, r: usize) -> usize {
    r.min(w.rows - ROWS)
}

/// Blocks `span` of every row, for some items.
struct Job<'a> {
    form: &'a Form,
    tile: &'a Tile<'a>,
    items: Range<usize>,
    span: Range<usize>,
    /// Blocks of a whole row.
    blocks: usize,
}

impl Job<'_> {
    /// Copies the items' codes, one item after another: raised by 128 where they are the unsigned side of products.
    ///
    /// # Safety
    /// AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn copy_acts(&self, to: &mut [u8; SLAB], sums: &mut [[i16; 8]; SLAB / 256]) {
        let acts = self.tile.acts;
        let wide = self.form.len == 256;
        if wide && self.form.class.minima && self.form.class.span == 32 {
            for (sums, i) in sums.chunks_exact_mut(self.span.len()).zip(self.items.clone()) {
                let pairs = acts.sums256(self.tile.act_rows.get(i)).as_chunks::<2>().0.as_chunks::<8>().0;
                for (sums, pairs) in sums.iter_mut().zip(&pairs[self.span.clone()]) {
                    *sums = std::array::from_fn(|j| pairs[j][0] + pairs[j][1]);
                }
            }
        }
        let len = self.span.len() * self.form.len;
        let up = if self.form.class.raised() { 0x80 } else { 0 };
        for (to, i) in to.chunks_exact_mut(len).zip(self.items.clone()) {
            let t = self.tile.act_rows.get(i);
            let codes = if wide { acts.codes256(t) } else { acts.codes32(t) };
            for (to, from) in to.iter_mut().zip(&codes[self.span.start * self.form.len..][..len]) {
                *to = *from as u8 ^ up;
            }
        }
    }

    /// Continues the chains of the items with sixteen rows.
    ///
    /// # Safety
    /// As [`run`]; `acts` has what [`Job::copy_acts`] wrote.
    unsafe fn multiply(
        &self,
        halves: [Blocks; 2],
        acts: &[u8; SLAB],
        sums: &[[i16; 8]; SLAB / 256],
        panel: &mut Panel,
        chains: &mut [Chain; ITEMS + MOST],
    ) {
        let form = self.form;
        let count = if form.len == 256 { CHAINS_WIDE } else { CHAINS_NARROW };
        let n = self.items.len();
        let each = RUN / form.len;
        let terms = form.len / form.class.term;
        for s in self.span.clone().step_by(each) {
            let part = s..(s + each).min(self.span.end);
            // bit i: a segment ends behind term i of the part
            let ends = (0..count).map(|c| segment(c, self.blocks, count).end).filter(|e| *e > part.start && *e <= part.end);
            let ends = ends.fold(0u32, |bits, e| bits | 1 << ((e - part.start) * terms - 1));
            // SAFETY: the caller's promise.
            unsafe {
                for (half, rows) in halves.into_iter().enumerate() {
                    (form.fill)(panel, rows.after(s * form.bytes), half, part.len());
                }
                let (from, cols) = ((s - self.span.start) * form.len, self.span.len() * form.len);
                self.send_for(halves, s + each);
                let mut at = 0;
                while at < n {
                    let share = (n - at).min(form.step * form.multiply.len());
                    let run = Run {
                        panel,
                        terms: part.len() * terms,
                        ends,
                        acts: self.tile.acts,
                        // the last item again for those that are not there
                        rows: std::array::from_fn(|t| self.tile.act_rows.get(self.items.start + (at + t).min(n - 1))),
                        last: share - 1,
                        codes: acts[at * cols + from..].as_ptr(),
                        cols,
                        sums: sums.as_ptr().wrapping_add(at * self.span.len() + s - self.span.start).cast(),
                        sums_each: self.span.len() * 8,
                        first: s * form.len,
                    };
                    (form.multiply[(share - 1) / form.step])(&run, &mut chains[at..]);
                    at += share;
                }
            }
        }
    }

    /// Sends for the blocks of the next panel: those from `s` on, or the first ones of the rows that are next.
    fn send_for(&self, halves: [Blocks; 2], s: usize) {
        let bytes = RUN / self.form.len * self.form.bytes;
        for rows in halves {
            let next = if s < self.span.end {
                rows.after(s * self.form.bytes)
            } else {
                rows.after(self.span.start * self.form.bytes + LANES * rows.stride)
            };
            for k in 0..ROWS {
                for line in 0..bytes.div_ceil(64) {
                    // SAFETY: a prefetch may name any address.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(next.of(k).wrapping_add(64 * line).cast()) };
                }
            }
        }
    }
}
