//! Attention of one query head over a list of selected cells (NUMERICS.md section 3).

use super::digits::{amax, digits, integer, join, scale_of};
use super::hadamard::hadamard_in_place;
use super::kv::{KvRows, Rows, f16_to_f32};
use super::{BLOCK, CHUNK, GROUPS, HEAD_DIM, INT8_GROUP, row_of};
use crate::math::{butterfly, exp};

/// Running result of the merge of chunks: largest score, sum of weights, weighted values.
#[derive(Clone, Debug)]
pub struct Merge {
    live: bool,
    m: f32,
    l: f32,
    acc: [f32; HEAD_DIM],
}

impl Default for Merge {
    fn default() -> Self {
        Merge { live: false, m: 0.0, l: 0.0, acc: [0.0; HEAD_DIM] }
    }
}

impl Merge {
    /// Takes the next live chunk. The first sets the state; a later one: `M' = max(M, m)`, `a = exp(M - M')`,
    /// `b = exp(m - M')`, `L = fma(L, a, l * b)`, `A = fma(A, a, acc * b)`.
    #[inline(always)]
    pub fn push(&mut self, m: f32, l: f32, acc: &[f32; HEAD_DIM]) {
        if !self.live {
            (self.live, self.m, self.l, self.acc) = (true, m, l, *acc);
            return;
        }
        let top = if m > self.m { m } else { self.m };
        let (a, b) = (exp(self.m - top), exp(m - top));
        self.l = self.l.mul_add(a, l * b);
        for (x, c) in self.acc.iter_mut().zip(acc) {
            *x = x.mul_add(a, c * b);
        }
        self.m = top;
    }

    /// `A / L`, or +0 if no chunk was live.
    #[inline(always)]
    pub fn finish(&self, out: &mut [f32; HEAD_DIM]) {
        for (o, a) in out.iter_mut().zip(&self.acc) {
            *o = if self.live { a / self.l } else { 0.0 };
        }
    }
}

/// A float row as integer digits under one scale.
#[derive(Clone, Debug)]
pub struct DigitRow<const N: usize> {
    pub scale: f32,
    /// `[digit][element]`
    pub d: [[i8; N]; 3],
}

impl<const N: usize> DigitRow<N> {
    /// The digits of up to `N` values; the rest are 0.
    #[inline(always)]
    pub fn new(x: &[f32]) -> Self {
        let (scale, factor) = scale_of(amax(x));
        let mut d = [[0; N]; 3];
        for (i, v) in x.iter().enumerate() {
            let n = digits(integer(*v, factor));
            (d[0][i], d[1][i], d[2][i]) = (n[0], n[1], n[2]);
        }
        DigitRow { scale, d }
    }
}

/// Dot of a query with a float key row: 32 lanes of eight neighbouring values, each one rounded product and seven
/// FMAs in order, then an xor butterfly.
#[inline(always)]
pub fn dot_f32(k: &[f32; HEAD_DIM], q: &[f32; HEAD_DIM]) -> f32 {
    let mut p = [0.0f32; 32];
    for (l, p) in p.iter_mut().enumerate() {
        let (k, q) = (&k[8 * l..8 * l + 8], &q[8 * l..8 * l + 8]);
        *p = k[0] * q[0];
        for j in 1..8 {
            *p = k[j].mul_add(q[j], *p);
        }
    }
    butterfly(p)
}

/// Dot of a query with an int8 key row: exact digit dots in each group of 64, then
/// `g = join(s0, s1 + 256 s2) * (scale_q * scale_k)` and `((g0 + g1) + g2) + g3`.
#[inline(always)]
pub fn dot_int8(codes: &[i8], scales: &[u16], q: &DigitRow<HEAD_DIM>) -> f32 {
    let mut sum = 0.0;
    for (g, scale) in scales.iter().enumerate() {
        let r = g * INT8_GROUP..(g + 1) * INT8_GROUP;
        let s: [i32; 3] =
            std::array::from_fn(|d| q.d[d][r.clone()].iter().zip(&codes[r.clone()]).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum());
        let term = join(s[0], s[1] + 256 * s[2]) * (q.scale * f16_to_f32(*scale));
        sum = if g == 0 { term } else { sum + term };
    }
    sum
}

/// Attention of one query head over up to [`CHUNK`] physical rows, `None` where a cell is masked: the largest score, the
/// sum of the weights `exp(score - largest)`, and the weighted values (in the rotated space if value rows are q4_0). A
/// masked cell weighs nothing; with no live cell the largest score is `-f32::MAX`.
#[inline(always)]
pub fn chunk(kv: &KvRows<'_>, q: &Query, rows: &[Option<usize>]) -> (f32, f32, [f32; HEAD_DIM]) {
    let mut p = [0.0f32; CHUNK];
    let mut m = -f32::MAX;
    for (s, row) in p.iter_mut().zip(rows) {
        let Some(r) = *row else { continue };
        let dot = match kv.k {
            Rows::Int8 { codes, scales } => {
                dot_int8(&codes[r * HEAD_DIM..(r + 1) * HEAD_DIM], &scales[r * GROUPS..(r + 1) * GROUPS], &q.digits)
            }
            keys => {
                let mut k = [0.0; HEAD_DIM];
                keys.decode(r, &mut k);
                dot_f32(&k, &q.q)
            }
        };
        *s = dot * 0.0625;
        m = if *s > m { *s } else { m };
    }
    for (s, row) in p.iter_mut().zip(rows) {
        *s = if row.is_some() { exp(*s - m) } else { 0.0 };
    }
    let l = butterfly::<32>(std::array::from_fn(|i| p[i] + p[i + 32]));
    let mut acc = [0.0f32; HEAD_DIM];
    let live = || rows.iter().enumerate().filter_map(|(i, row)| row.map(|r| (i, r)));
    match kv.v {
        Rows::Int8 { codes, scales } => {
            for g in 0..GROUPS {
                let mut x = [0.0f32; CHUNK];
                for (i, r) in live() {
                    x[i] = p[i] * f16_to_f32(scales[r * GROUPS + g]);
                }
                let x = DigitRow::<CHUNK>::new(&x[..rows.len()]);
                for d in g * INT8_GROUP..(g + 1) * INT8_GROUP {
                    let mut s = [0i32; 3];
                    for (i, r) in live() {
                        let v = i32::from(codes[r * HEAD_DIM + d]);
                        for (s, x) in s.iter_mut().zip(&x.d) {
                            *s += i32::from(x[i]) * v;
                        }
                    }
                    acc[d] = join(s[0], s[1] + 256 * s[2]) * x.scale;
                }
            }
        }
        values => {
            let mut v = [0.0; HEAD_DIM];
            for (i, r) in live() {
                values.decode(r, &mut v);
                for (a, v) in acc.iter_mut().zip(&v) {
                    *a = p[i].mul_add(*v, *a);
                }
            }
        }
    }
    (m, l, acc)
}

/// A query head made ready for one kind of key rows.
#[derive(Clone, Debug)]
pub struct Query {
    /// Rotated for q4_0 keys.
    pub q: [f32; HEAD_DIM],
    pub digits: DigitRow<HEAD_DIM>,
}

impl Query {
    /// From a normed and position-rotated query.
    #[inline(always)]
    pub fn new(keys: &Rows<'_>, q: &[f32; HEAD_DIM]) -> Query {
        let mut q = *q;
        if let Rows::Q4_0(_) = keys {
            hadamard_in_place(&mut q);
        }
        Query { digits: DigitRow::new(&q), q }
    }
}

/// Attention of one query head: softmax(q.k / 16) over `cells` (ascending ids, chunks of [`CHUNK`]) times the values.
/// No cell gives +0.
#[inline(always)]
pub fn attend_head(kv: &KvRows<'_>, kv_head: usize, q: &[f32; HEAD_DIM], cells: &[i32], out: &mut [f32; HEAD_DIM]) {
    attend_rows(kv, q, cells, |c| Some(row_of(c, kv_head, kv.kv_heads)), out);
}

/// [`attend_head`] under a page table: cell c is on page `pages[c / 4]`. A page below 0 is not resident: its cells are
/// masked. Chunks are counted over all selected cells; one without a live cell is skipped.
#[inline(always)]
pub fn attend_head_paged(kv: &KvRows<'_>, pages: &[i32], kv_head: usize, q: &[f32; HEAD_DIM], cells: &[i32], out: &mut [f32; HEAD_DIM]) {
    let row = |c: usize| usize::try_from(pages[c / BLOCK]).ok().map(|page| row_of(page * BLOCK + c % BLOCK, kv_head, kv.kv_heads));
    attend_rows(kv, q, cells, row, out);
}

#[inline(always)]
fn attend_rows(kv: &KvRows<'_>, q: &[f32; HEAD_DIM], cells: &[i32], row: impl Fn(usize) -> Option<usize>, out: &mut [f32; HEAD_DIM]) {
    let q = Query::new(&kv.k, q);
    let mut state = Merge::default();
    for cells in cells.chunks(CHUNK) {
        let mut rows = [None; CHUNK];
        for (r, c) in rows.iter_mut().zip(cells) {
            *r = row(*c as usize);
        }
        if rows.iter().any(Option::is_some) {
            let (m, l, acc) = chunk(kv, &q, &rows[..cells.len()]);
            state.push(m, l, &acc);
        }
    }
    state.finish(out);
    if let Rows::Q4_0(_) = kv.v {
        hadamard_in_place(out);
    }
}
