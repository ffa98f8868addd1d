//! KV row formats: one row is the 256 values of one KV head of one cell.

use super::hadamard::hadamard_in_place;
use super::{BLOCK, GROUPS, HEAD_DIM, INT8_GROUP, Q4_ROW};
use half::f16;

/// The storage format of one side (keys or values) of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    F32,
    F16,
    /// 256 signed codes and a half scale for every 64 of them.
    Int8,
    /// Rotated by Walsh-Hadamard, then 8 blocks of a half scale and 32 4-bit codes.
    Q4_0,
}

impl RowKind {
    /// Bytes of one row, scales included.
    pub const fn row_bytes(self) -> usize {
        match self {
            RowKind::F32 => HEAD_DIM * 4,
            RowKind::F16 => HEAD_DIM * 2,
            RowKind::Int8 => HEAD_DIM + GROUPS * 2,
            RowKind::Q4_0 => Q4_ROW,
        }
    }
}

/// The storage format of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvKind {
    F32,
    F16,
    Int8,
    Q4_0,
    /// int8 keys (not rotated), q4_0 values (rotated).
    K8V4,
}

impl KvKind {
    /// Every kind.
    pub const ALL: [KvKind; 5] = [KvKind::F32, KvKind::F16, KvKind::Int8, KvKind::Q4_0, KvKind::K8V4];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            KvKind::F32 => "f32",
            KvKind::F16 => "fp16",
            KvKind::Int8 => "int8",
            KvKind::Q4_0 => "q4_0",
            KvKind::K8V4 => "k8v4",
        }
    }

    /// The kind of a [`name`](KvKind::name).
    pub fn from_name(name: &str) -> Option<KvKind> {
        KvKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The format of key rows.
    pub const fn keys(self) -> RowKind {
        match self {
            KvKind::F32 => RowKind::F32,
            KvKind::F16 => RowKind::F16,
            KvKind::Int8 | KvKind::K8V4 => RowKind::Int8,
            KvKind::Q4_0 => RowKind::Q4_0,
        }
    }

    /// The format of value rows.
    pub const fn values(self) -> RowKind {
        match self {
            KvKind::F32 => RowKind::F32,
            KvKind::F16 => RowKind::F16,
            KvKind::Int8 => RowKind::Int8,
            KvKind::Q4_0 | KvKind::K8V4 => RowKind::Q4_0,
        }
    }

    /// Bytes of keys and values of one cell of one layer.
    pub const fn bytes_per_cell(self, kv_heads: usize) -> usize {
        (self.keys().row_bytes() + self.values().row_bytes()) * kv_heads
    }
}

/// Physical rows of one side of a cache, in [`row_of`](super::row_of) order.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    Int8 { codes: &'a [i8], scales: &'a [u16] },
    Q4_0(&'a [u8]),
}

impl Rows<'_> {
    /// The value of one row as floats. q4_0 rows stay rotated.
    #[inline(always)]
    pub fn decode(&self, row: usize, out: &mut [f32; HEAD_DIM]) {
        let r = row * HEAD_DIM..(row + 1) * HEAD_DIM;
        match self {
            Rows::F32(x) => out.copy_from_slice(&x[r]),
            Rows::F16(x) => decode_f16(&x[r], out),
            Rows::Int8 { codes, scales } => decode_int8(&codes[r], &scales[row * GROUPS..(row + 1) * GROUPS], out),
            Rows::Q4_0(x) => decode_q4(&x[row * Q4_ROW..(row + 1) * Q4_ROW], out),
        }
    }
}

/// Keys and values of one layer of one sequence, in physical rows.
#[derive(Clone, Copy, Debug)]
pub struct KvRows<'a> {
    pub k: Rows<'a>,
    pub v: Rows<'a>,
    pub kv_heads: usize,
}

/// The float of a half, exactly. Branch-free apart from selects.
#[inline(always)]
pub fn f16_to_f32(h: u16) -> f32 {
    let magnitude = u32::from(h & 0x7fff) << 13;
    // the half's bits read as a float are 2^112 too small, subnormals included
    let value = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let value = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { value };
    f32::from_bits(value | u32::from(h & 0x8000) << 16)
}

/// The nearest half, ties to even.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

/// Halves of a row.
#[inline(always)]
pub fn encode_f16(x: &[f32], out: &mut [u16]) {
    for (o, v) in out.iter_mut().zip(x) {
        *o = f32_to_f16(*v);
    }
}

/// The floats of halves.
#[inline(always)]
pub fn decode_f16(x: &[u16], out: &mut [f32]) {
    for (o, v) in out.iter_mut().zip(x) {
        *o = f16_to_f32(*v);
    }
}

/// Codes and scales of an int8 row: the scale of 64 values is the half nearest to max|x| / 127, a code is
/// `rint_even(x / scale)` with the stored scale, held within +-127; scale 0 gives codes 0.
#[inline(always)]
pub fn encode_int8(x: &[f32], codes: &mut [i8], scales: &mut [u16]) {
    for ((x, codes), scale) in x.chunks_exact(INT8_GROUP).zip(codes.chunks_exact_mut(INT8_GROUP)).zip(scales) {
        *scale = f32_to_f16(super::digits::amax(x) / 127.0);
        let s = f16_to_f32(*scale);
        for (c, v) in codes.iter_mut().zip(x) {
            *c = if s == 0.0 { 0 } else { code_of(v / s) };
        }
    }
}

/// `rint_even(x)` held within +-127; 0 of NaN. (In steps that become vector instructions, which a cast from any float does not.)
#[inline(always)]
fn code_of(x: f32) -> i8 {
    let x = x.round_ties_even();
    let x = if x > 127.0 { 127.0 } else { x };
    let x = if x < -127.0 { -127.0 } else { x };
    let x = if x.is_nan() { 0.0 } else { x };
    // SAFETY: not NaN and within +-127, which an i32 holds.
    let x: i32 = unsafe { x.to_int_unchecked() };
    x as i8
}

/// The floats of an int8 row.
#[inline(always)]
pub fn decode_int8(codes: &[i8], scales: &[u16], out: &mut [f32]) {
    for ((codes, scale), out) in codes.chunks_exact(INT8_GROUP).zip(scales).zip(out.chunks_exact_mut(INT8_GROUP)) {
        let s = f16_to_f32(*scale);
        for (o, c) in out.iter_mut().zip(codes) {
            *o = f32::from(*c) * s;
        }
    }
}

/// The 144 bytes of a q4_0 row of a row that is **not yet rotated**.
///
/// Of each 32 rotated values, `m` is the one of largest magnitude (of two such, the positive one), `d = m / -8`, a
/// code is `trunc(x * (1 / d) + 8.5)` held in 0..=15. Byte j holds element j low and element j + 16 high.
#[inline(always)]
pub fn encode_q4(x: &[f32; HEAD_DIM], out: &mut [u8]) {
    let mut x = *x;
    hadamard_in_place(&mut x);
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<18>().0) {
        let mut m = 0.0f32;
        for v in x {
            m = if v.abs() > m.abs() || (v.abs() == m.abs() && *v > m) { *v } else { m };
        }
        let d = m / -8.0;
        let id = if d == 0.0 { 0.0 } else { 1.0 / d };
        let code = |v: f32| ((v * id + 8.5) as i32).clamp(0, 15) as u8;
        out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
        for j in 0..16 {
            out[2 + j] = code(x[j]) | code(x[j + 16]) << 4;
        }
    }
}

/// The floats of a q4_0 row, still rotated.
#[inline(always)]
pub fn decode_q4(x: &[u8], out: &mut [f32; HEAD_DIM]) {
    for (x, out) in x.as_chunks::<18>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let d = f16_to_f32(u16::from_le_bytes([x[0], x[1]]));
        for j in 0..16 {
            out[j] = (i32::from(x[2 + j] & 15) - 8) as f32 * d;
            out[j + 16] = (i32::from(x[2 + j] >> 4) - 8) as f32 * d;
        }
    }
}

/// Rows that a cache of `cells` cells needs for one side: whole blocks.
pub const fn rows_for(cells: usize, kv_heads: usize) -> Option<usize> {
    match cells.div_ceil(BLOCK).checked_mul(BLOCK) {
        Some(whole) => whole.checked_mul(kv_heads),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: u32) -> [f32; HEAD_DIM] {
        let mut s = seed;
        std::array::from_fn(|_| {
            s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (s >> 8) as f32 / 8_388_608.0 - 1.0
        })
    }

    #[test]
    fn halves_convert_exactly() {
        for h in 0..=u16::MAX {
            let want = f16::from_bits(h);
            if want.is_nan() {
                assert!(f16_to_f32(h).is_nan());
            } else {
                assert_eq!(f16_to_f32(h).to_bits(), want.to_f32().to_bits(), "{h:#x}");
                assert_eq!(f32_to_f16(f16_to_f32(h)), h);
            }
        }
        // ties to even
        assert_eq!(f16_to_f32(f32_to_f16(2049.0)), 2048.0);
        assert_eq!(f16_to_f32(f32_to_f16(2051.0)), 2052.0);
    }

    #[test]
    fn sizes_are_the_published_ones() {
        let bytes = KvKind::ALL.map(|k| k.bytes_per_cell(2));
        assert_eq!(bytes, [4096, 2048, 1056, 576, 816]);
        assert!(KvKind::ALL.into_iter().all(|k| KvKind::from_name(k.name()) == Some(k)));
        assert_eq!(KvKind::from_name("fp8"), None);
    }

    #[test]
    fn int8_divides_by_the_stored_scale() {
        let x = row(3);
        let (mut codes, mut scales) = ([0i8; HEAD_DIM], [0u16; GROUPS]);
        encode_int8(&x, &mut codes, &mut scales);
        for (i, v) in x.iter().enumerate() {
            let s = f16_to_f32(scales[i / 64]);
            assert_eq!(i32::from(codes[i]), (f64::from(*v) / f64::from(s)).round_ties_even().clamp(-127.0, 127.0) as i32);
        }
        let mut back = [0.0; HEAD_DIM];
        decode_int8(&codes, &scales, &mut back);
        assert!(x.iter().zip(&back).all(|(a, b)| (a - b).abs() <= 0.5 / 127.0 * 1.01));
        // a scale that rounds to a zero half
        let mut tiny = [1e-8f32; HEAD_DIM];
        tiny[70] = 1.0;
        encode_int8(&tiny, &mut codes, &mut scales);
        assert_eq!((scales[0], codes[0]), (0, 0));
        assert_eq!((codes[70], codes[71]), (127, 0));
    }

    #[test]
    fn q4_ties_take_the_larger_signed_value() {
        // a single constant rotates to one spike; build the rotated row instead, by rotating twice
        let mut x = [0.0f32; HEAD_DIM];
        x[0] = -8.0;
        x[17] = 8.0;
        hadamard_in_place(&mut x);
        let mut out = [0u8; Q4_ROW];
        encode_q4(&x, &mut out);
        assert_eq!(f16_to_f32(u16::from_le_bytes([out[0], out[1]])), -1.0);
        // -8 / -1 + 8.5 = 16.5, held at 15; 8 / -1 + 8.5 = 0.5, truncated to 0
        assert_eq!(out[2] & 15, 15);
        assert_eq!(out[3] >> 4, 0);
        assert_eq!(out[4], 0x88);
        let mut back = [1.0; HEAD_DIM];
        decode_q4(&out, &mut back);
        assert_eq!((back[0], back[17], back[1]), (-7.0, 8.0, 0.0));
        // an empty block stores -0 and codes 8
        assert_eq!((&out[18..20], out[20]), (&[0, 0x80][..], 0x88));
    }

    #[test]
    fn q4_error_is_that_of_four_bits() {
        let x = row(9);
        let mut out = [0u8; Q4_ROW];
        encode_q4(&x, &mut out);
        let mut back = [0.0; HEAD_DIM];
        decode_q4(&out, &mut back);
        hadamard_in_place(&mut back);
        let err: f32 = x.iter().zip(&back).map(|(a, b)| (a - b).powi(2)).sum();
        let all: f32 = x.iter().map(|a| a * a).sum();
        assert!(err / all < 0.01, "{}", err / all);
    }
}
