//! Attention over int8 rows by integer digits. The digit dots are exact, so their order is free.

use super::group::{ChunkBuf, GroupQuery, to_digits};
use super::largest::amax;
use super::prefetch::Ahead;
use crate::simd::Simd;
use strata_ops::qsa::digits::{join, scale_of};
use strata_ops::qsa::kv::f16_to_f32;
use strata_ops::qsa::{CHUNK, GROUPS, HEAD_DIM, INT8_GROUP};

/// Digit dots of eight key rows with every head: `s0` and `s12` are `[head][group][8 cells]`, `d0` and `d12`
/// `[head][256]`.
pub(crate) type DotsFn = unsafe fn(rows: &[&[i8; HEAD_DIM]; 8], d0: &[i16], d12: &[i16], s0: &mut [i32], s12: &mut [i32]);

/// Digit sums over cells of 64 value dimensions: `s[d] = sum over cells of digit * code`, codes in pairs of cells
/// `[pair][64][2]`, digits `[cell]` (both with zeros to a whole pair).
pub(crate) type ValuesFn =
    unsafe fn(pairs: &[[i16; 128]], d0: &[i16; CHUNK], d12: &[i16; CHUNK], s0: &mut [i32; INT8_GROUP], s12: &mut [i32; INT8_GROUP]);

/// The scales of a row.
#[inline(always)]
fn row_scales(scales: &[u16], row: usize) -> [f32; GROUPS] {
    scales[row * GROUPS..].first_chunk::<GROUPS>().expect("a row of the cache has four scales").map(f16_to_f32)
}

/// Scores of a chunk, eight cells at a time.
#[inline(always)]
pub(super) fn scores_int8(
    codes: &[i8],
    scales: &[u16],
    rows: &[usize],
    q: &GroupQuery,
    buf: &mut ChunkBuf,
    dots: DotsFn,
    ahead: Ahead<'_>,
) {
    let row_codes = |row: usize| codes[row * HEAD_DIM..].first_chunk::<HEAD_DIM>().expect("a row of the cache has 256 codes");
    for (block, rows) in rows.chunks(8).enumerate() {
        ahead.send(block * 8);
        // a short block repeats its first row; the extra scores are not used
        let row = |i: usize| rows[if i < rows.len() { i } else { 0 }];
        let keys = std::array::from_fn(|i| row_codes(row(i)));
        let mut scale = [[0.0f32; 8]; GROUPS];
        for i in 0..8 {
            for (all, s) in scale.iter_mut().zip(row_scales(scales, row(i))) {
                all[i] = s;
            }
        }
        // SAFETY: the kernels were picked for a level of this CPU.
        unsafe { dots(&keys, &q.d0, &q.d12, &mut buf.s0, &mut buf.s12) };
        let (s0, s12) = (buf.s0.as_chunks::<8>().0, buf.s12.as_chunks::<8>().0);
        for (h, p) in buf.p.as_chunks_mut::<CHUNK>().0.iter_mut().enumerate() {
            let mut sum = [0.0f32; 8];
            for g in 0..GROUPS {
                for i in 0..8 {
                    let term = join(s0[h * GROUPS + g][i], s12[h * GROUPS + g][i]) * (q.scale[h] * scale[g][i]);
                    sum[i] = if g == 0 { term } else { sum[i] + term };
                }
            }
            for i in 0..8 {
                p[block * 8 + i] = sum[i] * 0.0625;
            }
        }
    }
}

/// Weighted values of a chunk, one scale group of 64 dimensions at a time.
#[inline(always)]
pub(super) fn values_int8(codes: &[i8], scales: &[u16], rows: &[usize], buf: &mut ChunkBuf, values: ValuesFn) {
    let zeros = [0i8; INT8_GROUP];
    // scales past the chunk's cells are 0
    let mut all_scales = [[0.0f32; CHUNK]; GROUPS];
    for (i, row) in rows.iter().enumerate() {
        let of_row = row_scales(scales, *row);
        for (all, scale) in all_scales.iter_mut().zip(of_row) {
            all[i] = scale;
        }
    }
    let pairs = &mut buf.pairs.as_chunks_mut::<128>().0[..rows.len().div_ceil(2)];
    for g in 0..GROUPS {
        let row_codes =
            |row: usize| codes[row * HEAD_DIM + g * INT8_GROUP..].first_chunk::<INT8_GROUP>().expect("a row of the cache has 256 codes");
        for (rows, out) in rows.chunks(2).zip(pairs.iter_mut()) {
            let (a, b) = (row_codes(rows[0]), if rows.len() == 2 { row_codes(rows[1]) } else { &zeros });
            for d in 0..INT8_GROUP {
                (out[2 * d], out[2 * d + 1]) = (i16::from(a[d]), i16::from(b[d]));
            }
        }
        let scale = &all_scales[g];
        for (p, acc) in buf.p.as_chunks::<CHUNK>().0.iter().zip(buf.acc.as_chunks_mut::<HEAD_DIM>().0) {
            // weights past the chunk's cells are 0 too
            let x: [f32; CHUNK] = std::array::from_fn(|i| p[i] * scale[i]);
            let (x_scale, factor) = scale_of(amax(&x));
            let (mut d0, mut d12) = ([0i16; CHUNK], [0i16; CHUNK]);
            to_digits(&x, factor, &mut d0, &mut d12);
            let (mut s0, mut s12) = ([0i32; INT8_GROUP], [0i32; INT8_GROUP]);
            // SAFETY: the kernels were picked for a level of this CPU.
            unsafe { values(pairs, &d0, &d12, &mut s0, &mut s12) };
            let acc = &mut acc.as_chunks_mut::<INT8_GROUP>().0[g];
            for d in 0..INT8_GROUP {
                acc[d] = join(s0[d], s12[d]) * x_scale;
            }
        }
    }
}

/// [`DotsFn`] in plain Rust.
#[inline(always)]
fn dots_body(rows: &[&[i8; HEAD_DIM]; 8], d0: &[i16], d12: &[i16], s0: &mut [i32], s12: &mut [i32]) {
    let mut wide = [0i16; HEAD_DIM];
    let dot = |k: &[i16], q: &[i16]| k.iter().zip(q).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
    for (c, row) in rows.iter().enumerate() {
        for (w, v) in wide.iter_mut().zip(row.iter()) {
            *w = i16::from(*v);
        }
        for (i, (a, b)) in d0.chunks_exact(INT8_GROUP).zip(d12.chunks_exact(INT8_GROUP)).enumerate() {
            let k = &wide[i % GROUPS * INT8_GROUP..][..INT8_GROUP];
            (s0[i * 8 + c], s12[i * 8 + c]) = (dot(k, a), dot(k, b));
        }
    }
}

/// [`ValuesFn`] in plain Rust.
#[inline(always)]
fn values_body(pairs: &[[i16; 128]], d0: &[i16; CHUNK], d12: &[i16; CHUNK], s0: &mut [i32; INT8_GROUP], s12: &mut [i32; INT8_GROUP]) {
    (*s0, *s12) = ([0; INT8_GROUP], [0; INT8_GROUP]);
    for (i, v) in pairs.iter().enumerate() {
        let (a, b) = (&d0[2 * i..2 * i + 2], &d12[2 * i..2 * i + 2]);
        for d in 0..INT8_GROUP {
            let v = [i32::from(v[2 * d]), i32::from(v[2 * d + 1])];
            s0[d] += i32::from(a[0]) * v[0] + i32::from(a[1]) * v[1];
            s12[d] += i32::from(b[0]) * v[0] + i32::from(b[1]) * v[1];
        }
    }
}

unsafe fn dots_plain(rows: &[&[i8; HEAD_DIM]; 8], d0: &[i16], d12: &[i16], s0: &mut [i32], s12: &mut [i32]) {
    dots_body(rows, d0, d12, s0, s12);
}

unsafe fn values_plain(
    pairs: &[[i16; 128]],
    d0: &[i16; CHUNK],
    d12: &[i16; CHUNK],
    s0: &mut [i32; INT8_GROUP],
    s12: &mut [i32; INT8_GROUP],
) {
    values_body(pairs, d0, d12, s0, s12);
}

/// The integer kernels of a level.
pub(super) fn pick(level: Simd) -> (DotsFn, ValuesFn) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::int8_x86 as x86;
        match level {
            Simd::Scalar => (dots_plain, values_plain),
            Simd::Avx2 => (x86::dots_avx2, x86::values_avx2),
            Simd::Avx512 => (x86::dots_avx512, x86::values_avx512),
            Simd::Avx512Vnni | Simd::Avx512Vbmi => (x86::dots_vnni, x86::values_vnni),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = level;
        (dots_plain, values_plain)
    }
}
