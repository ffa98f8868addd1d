//! What a kernel is asked to do.

use super::Matrix;
use std::ops::Range;
use strata_ops::matmul::Acts;

/// Rows of activations or outputs, by item number.
#[derive(Clone, Copy)]
pub(super) enum RowMap<'a> {
    /// Item i is row i.
    Same,
    /// Item i is row `list[i]`.
    List(&'a [u32]),
}

impl RowMap<'_> {
    #[inline(always)]
    pub fn get(&self, i: usize) -> usize {
        match self {
            RowMap::Same => i,
            RowMap::List(list) => list[i] as usize,
        }
    }
}

/// A rectangle of a product: for item i and weight row r, `out[out_rows(i)][r - first] = row r . acts[act_rows(i)]`.
#[derive(Clone)]
pub(super) struct Tile<'a> {
    pub acts: &'a Acts,
    /// Weight rows.
    pub rows: Range<usize>,
    /// The weight row that goes to column 0 of the output.
    pub first: usize,
    pub items: Range<usize>,
    pub act_rows: RowMap<'a>,
    pub out_rows: RowMap<'a>,
    pub out: Output,
}

impl Tile<'_> {
    /// Writes the outputs of item `i` for rows `row..row + y.len()`, as far as they belong to the tile.
    ///
    /// # Safety
    /// As for a [`Kernel`].
    #[inline(always)]
    pub unsafe fn store<const N: usize>(&self, i: usize, row: usize, y: &[f32; N]) {
        if row >= self.rows.start && row + N <= self.rows.end {
            // SAFETY: as below.
            let out = unsafe { self.out.row(self.out_rows.get(i), row - self.first..row + N - self.first) };
            // a copy of known length is an instruction, not a call
            *out.first_chunk_mut().expect("as many as were asked for") = *y;
            return;
        }
        let start = row.max(self.rows.start);
        let end = (row + y.len()).min(self.rows.end);
        // SAFETY: the tile's own outputs, by the caller's promise.
        let out = unsafe { self.out.row(self.out_rows.get(i), start - self.first..end - self.first) };
        out.copy_from_slice(&y[start - row..end - row]);
    }
}

/// A kernel: computes a tile.
///
/// # Safety
/// The CPU has the level the kernel was picked for; the matrix is stored the way the kernel reads; the tile's rows,
/// activation rows (of the right form and width) and output rows exist, and nothing else accesses these outputs
/// during the call.
pub(super) type Kernel = unsafe fn(&Matrix, &Tile<'_>);

/// An output array `[rows][stride]` that several threads write to, each in its own places.
#[derive(Clone, Copy)]
pub(super) struct Output {
    at: *mut f32,
    len: usize,
    stride: usize,
}

// SAFETY: a plain address; who writes through it promises not to overlap with others (see `Output::row`).
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

impl Output {
    pub fn new(out: &mut [f32], stride: usize) -> Output {
        Output { at: out.as_mut_ptr(), len: out.len(), stride }
    }

    /// Columns `cols` of row `row`.
    ///
    /// # Safety
    /// The array is alive, and for the life of the result no one else accesses these columns of this row.
    #[inline(always)]
    pub unsafe fn row<'a>(self, row: usize, cols: Range<usize>) -> &'a mut [f32] {
        let at = row * self.stride + cols.start;
        assert!(cols.end <= self.stride && at + cols.len() <= self.len, "a product writes outside its output");
        // SAFETY: inside the array by the assertion; alive and ours by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(at), cols.len()) }
    }
}
