//! Activations prepared for products.

use super::{ACT_BLOCK_NARROW, ACT_BLOCK_WIDE, ActForm, SUM_SPAN, TINY, act_form};
use strata_quant::DType;

/// A set of [`ActForm`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms(u8);

impl Forms {
    /// No form.
    pub const NONE: Forms = Forms(0);

    /// This set and `form`.
    pub const fn with(self, form: ActForm) -> Forms {
        Forms(self.0 | 1 << form as u8)
    }

    /// True if `form` is in the set.
    pub const fn has(self, form: ActForm) -> bool {
        self.0 >> form as u8 & 1 == 1
    }

    /// The forms that matrices of these formats want.
    pub fn of(dtypes: impl IntoIterator<Item = DType>) -> Forms {
        dtypes.into_iter().fold(Forms::NONE, |f, d| f.with(act_form(d)))
    }
}

/// Up to `max_rows` rows of `cols` activations in one or more forms. Nothing is allocated after construction.
///
/// A form takes its space only if it was asked for. Columns beyond the last whole block of a quantised form are
/// left out of it: a matrix of such a width has no weights of that form.
pub struct Acts {
    max_rows: usize,
    cols: usize,
    forms: Forms,
    f32s: Vec<f32>,
    codes32: Vec<i8>,
    scales32: Vec<f32>,
    sums32: Vec<i32>,
    codes256: Vec<i8>,
    scales256: Vec<f32>,
    sums256: Vec<i16>,
}

/// Rows of activations to be written, see [`Acts::rows_mut`]. Slices of forms not held are empty.
pub struct ActRows<'a> {
    cols: usize,
    f32s: &'a mut [f32],
    codes32: &'a mut [i8],
    scales32: &'a mut [f32],
    sums32: &'a mut [i32],
    codes256: &'a mut [i8],
    scales256: &'a mut [f32],
    sums256: &'a mut [i16],
}

impl Acts {
    /// Space for `max_rows` rows of `cols` values in `forms`.
    pub fn new(max_rows: usize, cols: usize, forms: Forms) -> Acts {
        let held = |form, per_row: usize| {
            if forms.has(form) { max_rows * per_row } else { 0 }
        };
        let narrow = cols / ACT_BLOCK_NARROW;
        let wide = cols / ACT_BLOCK_WIDE;
        Acts {
            max_rows,
            cols,
            forms,
            f32s: vec![0.0; held(ActForm::F32, cols)],
            codes32: vec![0; held(ActForm::Q32, narrow * ACT_BLOCK_NARROW)],
            scales32: vec![0.0; held(ActForm::Q32, narrow)],
            sums32: vec![0; held(ActForm::Q32, narrow)],
            codes256: vec![0; held(ActForm::Q256, wide * ACT_BLOCK_WIDE)],
            scales256: vec![0.0; held(ActForm::Q256, wide)],
            sums256: vec![0; held(ActForm::Q256, wide * ACT_BLOCK_WIDE / SUM_SPAN)],
        }
    }

    /// Bytes of [`Acts::new`].
    pub fn bytes(max_rows: usize, cols: usize, forms: Forms) -> u128 {
        let held = |form, per_row: usize| if forms.has(form) { per_row as u128 } else { 0 };
        let (narrow, wide) = (cols / ACT_BLOCK_NARROW, cols / ACT_BLOCK_WIDE);
        let per_row = held(ActForm::F32, 4 * cols)
            + held(ActForm::Q32, narrow * (ACT_BLOCK_NARROW + 8))
            + held(ActForm::Q256, wide * (ACT_BLOCK_WIDE + 4 + 2 * (ACT_BLOCK_WIDE / SUM_SPAN)));
        max_rows as u128 * per_row
    }

    /// Rows there is space for.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// Values a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The forms held.
    pub fn forms(&self) -> Forms {
        self.forms
    }

    /// Row `t` as `f32`.
    #[inline(always)]
    pub fn f32_row(&self, t: usize) -> &[f32] {
        row(&self.f32s, self.cols, t)
    }

    /// Codes of row `t`, in -127..=127, one scale for every 32.
    #[inline(always)]
    pub fn codes32(&self, t: usize) -> &[i8] {
        row(&self.codes32, self.cols / ACT_BLOCK_NARROW * ACT_BLOCK_NARROW, t)
    }

    /// Scales of row `t`, one for every 32 values.
    #[inline(always)]
    pub fn scales32(&self, t: usize) -> &[f32] {
        row(&self.scales32, self.cols / ACT_BLOCK_NARROW, t)
    }

    /// Sums of every 32 codes of row `t`.
    #[inline(always)]
    pub fn sums32(&self, t: usize) -> &[i32] {
        row(&self.sums32, self.cols / ACT_BLOCK_NARROW, t)
    }

    /// Codes of row `t`, in -127..=127, one scale for every 256.
    #[inline(always)]
    pub fn codes256(&self, t: usize) -> &[i8] {
        row(&self.codes256, self.cols / ACT_BLOCK_WIDE * ACT_BLOCK_WIDE, t)
    }

    /// Scales of row `t`, one for every 256 values.
    #[inline(always)]
    pub fn scales256(&self, t: usize) -> &[f32] {
        row(&self.scales256, self.cols / ACT_BLOCK_WIDE, t)
    }

    /// Sums of every [`SUM_SPAN`] codes of row `t` in the 256-wide form.
    #[inline(always)]
    pub fn sums256(&self, t: usize) -> &[i16] {
        row(&self.sums256, self.cols / ACT_BLOCK_WIDE * (ACT_BLOCK_WIDE / SUM_SPAN), t)
    }

    /// The first `n` rows, to be written.
    ///
    /// # Panics
    /// If `n` is above [`Acts::max_rows`].
    pub fn rows_mut(&mut self, n: usize) -> ActRows<'_> {
        assert!(n <= self.max_rows, "{n} rows of activations where there is space for {}", self.max_rows);
        ActRows {
            cols: self.cols,
            f32s: &mut self.f32s,
            codes32: &mut self.codes32,
            scales32: &mut self.scales32,
            sums32: &mut self.sums32,
            codes256: &mut self.codes256,
            scales256: &mut self.scales256,
            sums256: &mut self.sums256,
        }
        .split_at(n)
        .0
    }
}

#[inline(always)]
fn row<T>(all: &[T], len: usize, t: usize) -> &[T] {
    &all[t * len..(t + 1) * len]
}

impl<'a> ActRows<'a> {
    /// The first `n` rows and the rest.
    ///
    /// # Panics
    /// If there are fewer than `n` rows.
    pub fn split_at(self, n: usize) -> (ActRows<'a>, ActRows<'a>) {
        let cols = self.cols;
        let narrow = cols / ACT_BLOCK_NARROW * n;
        let wide = cols / ACT_BLOCK_WIDE * n;
        let f32s = split(self.f32s, cols * n);
        let codes32 = split(self.codes32, narrow * ACT_BLOCK_NARROW);
        let scales32 = split(self.scales32, narrow);
        let sums32 = split(self.sums32, narrow);
        let codes256 = split(self.codes256, wide * ACT_BLOCK_WIDE);
        let scales256 = split(self.scales256, wide);
        let sums256 = split(self.sums256, wide * (ACT_BLOCK_WIDE / SUM_SPAN));
        (
            ActRows {
                cols,
                f32s: f32s.0,
                codes32: codes32.0,
                scales32: scales32.0,
                sums32: sums32.0,
                codes256: codes256.0,
                scales256: scales256.0,
                sums256: sums256.0,
            },
            ActRows {
                cols,
                f32s: f32s.1,
                codes32: codes32.1,
                scales32: scales32.1,
                sums32: sums32.1,
                codes256: codes256.1,
                scales256: scales256.1,
                sums256: sums256.1,
            },
        )
    }

    /// Writes the rows of `x` (`[rows, cols]`) in every form held.
    ///
    /// # Panics
    /// If `x` has another size.
    #[inline(always)]
    pub fn fill(&mut self, x: &[f32]) {
        self.fill_by(x, quantize_and_sum::<ACT_BLOCK_NARROW, ACT_BLOCK_NARROW, i32>, quantize_and_sum::<ACT_BLOCK_WIDE, SUM_SPAN, i16>);
    }

    /// [`ActRows::fill`] with another way to quantise the blocks of a row, of both widths: values to codes, scales and sums of codes
    /// (of 32 in the narrow form, of [`SUM_SPAN`] in the wide one). The bits are to be those of [`quantize_row`].
    ///
    /// # Panics
    /// As [`ActRows::fill`].
    #[inline(always)]
    pub fn fill_by(
        &mut self,
        x: &[f32],
        narrow: impl Fn(&[f32], &mut [i8], &mut [f32], &mut [i32]),
        wide: impl Fn(&[f32], &mut [i8], &mut [f32], &mut [i16]),
    ) {
        if !self.f32s.is_empty() {
            self.f32s.copy_from_slice(x);
        }
        each_row::<ACT_BLOCK_NARROW, ACT_BLOCK_NARROW, _>(x, self.cols, self.codes32, self.scales32, self.sums32, narrow);
        each_row::<ACT_BLOCK_WIDE, SUM_SPAN, _>(x, self.cols, self.codes256, self.scales256, self.sums256, wide);
    }
}

/// Calls `quantize` for every row of a form, if it is held.
#[inline(always)]
fn each_row<const BLOCK: usize, const SPAN: usize, S>(
    x: &[f32],
    cols: usize,
    codes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [S],
    quantize: impl Fn(&[f32], &mut [i8], &mut [f32], &mut [S]),
) {
    let blocks = cols / BLOCK;
    if blocks == 0 || codes.is_empty() {
        return;
    }
    let codes = codes.chunks_exact_mut(blocks * BLOCK);
    assert_eq!(x.len(), codes.len() * cols, "values to quantise");
    let (scales, sums) = (scales.chunks_exact_mut(blocks), sums.chunks_exact_mut(blocks * BLOCK / SPAN));
    for (((x, codes), scales), sums) in x.chunks_exact(cols).zip(codes).zip(scales).zip(sums) {
        quantize(x, codes, scales, sums);
    }
}

/// [`quantize_row`], and the sums of every `SPAN` codes.
#[inline(always)]
fn quantize_and_sum<const BLOCK: usize, const SPAN: usize, S: From<i8> + std::iter::Sum>(
    x: &[f32],
    codes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [S],
) {
    quantize_row::<BLOCK>(x, codes, scales);
    sum_codes::<SPAN, S>(codes, sums);
}

/// The sums of every `SPAN` codes.
#[inline(always)]
fn sum_codes<const SPAN: usize, S: From<i8> + std::iter::Sum>(codes: &[i8], sums: &mut [S]) {
    for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<SPAN>().0) {
        *sum = codes.iter().map(|&c| S::from(c)).sum();
    }
}

impl ActRows<'_> {
    /// Writes the second order of the rows of `x`: in each quantised form what the codes of `first`, the same rows
    /// filled from `x`, leave out (`x - scale * code`, one fused step a value); in the float form, which leaves out
    /// nothing, +0. A product of both orders, added, is one with about 15 bits of every activation.
    ///
    /// # Panics
    /// If `x` or `first` has another size.
    #[inline(always)]
    pub fn fill_second_order(&mut self, x: &[f32], first: &ActRows<'_>) {
        self.f32s.fill(0.0);
        let cols = self.cols;
        let narrow = cols / ACT_BLOCK_NARROW;
        if narrow > 0 && !self.codes32.is_empty() {
            assert!(x.len() / cols * narrow == self.scales32.len() && first.codes32.len() == self.codes32.len(), "rows of second order");
            for (t, x) in x.chunks_exact(cols).enumerate() {
                let blocks = t * narrow..(t + 1) * narrow;
                left_out::<ACT_BLOCK_NARROW>(x, first.codes32, first.scales32, self.codes32, self.scales32, blocks);
            }
            sum_codes::<ACT_BLOCK_NARROW, i32>(self.codes32, self.sums32);
        }
        let wide = cols / ACT_BLOCK_WIDE;
        if wide > 0 && !self.codes256.is_empty() {
            assert!(x.len() / cols * wide == self.scales256.len() && first.codes256.len() == self.codes256.len(), "rows of second order");
            for (t, x) in x.chunks_exact(cols).enumerate() {
                let blocks = t * wide..(t + 1) * wide;
                left_out::<ACT_BLOCK_WIDE>(x, first.codes256, first.scales256, self.codes256, self.scales256, blocks);
            }
            sum_codes::<SUM_SPAN, i16>(self.codes256, self.sums256);
        }
    }
}

/// Quantises what `codes` and `scales` leave out of the blocks of a row.
#[inline(always)]
fn left_out<const BLOCK: usize>(
    x: &[f32],
    codes: &[i8],
    scales: &[f32],
    out_codes: &mut [i8],
    out_scales: &mut [f32],
    blocks: std::ops::Range<usize>,
) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        let mut rest = [0.0f32; BLOCK];
        for ((r, x), q) in rest.iter_mut().zip(x).zip(&codes[b * BLOCK..(b + 1) * BLOCK]) {
            *r = (-scales[b]).mul_add(f32::from(*q), *x);
        }
        quantize_row::<BLOCK>(&rest, &mut out_codes[b * BLOCK..(b + 1) * BLOCK], &mut out_scales[b..b + 1]);
    }
}

/// Splits a form's slice, which is empty if the form is not held.
fn split<T>(all: &mut [T], at: usize) -> (&mut [T], &mut [T]) {
    let at = if all.is_empty() { 0 } else { at };
    all.split_at_mut(at)
}

/// Quantises as many blocks of `BLOCK` values of `x` as there are `scales`: codes in -127..=127.
#[inline(always)]
pub fn quantize_row<const BLOCK: usize>(x: &[f32], codes: &mut [i8], scales: &mut [f32]) {
    let x = x.as_chunks::<BLOCK>().0;
    let codes = codes.as_chunks_mut::<BLOCK>().0;
    for ((x, codes), scale) in x.iter().zip(codes).zip(scales) {
        // magnitudes order like their bit patterns, and integer maxima vectorise
        let amax = f32::from_bits(x.iter().fold(0, |m, v| m.max(v.to_bits() & 0x7fff_ffff)));
        if amax < TINY {
            *scale = 0.0;
            *codes = [0; BLOCK];
            continue;
        }
        *scale = amax / 127.0;
        let inv = 127.0 / amax;
        for (q, v) in codes.iter_mut().zip(x) {
            // |v * inv| <= 127.00002: adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits
            *q = (v * inv + 12_582_912.0).to_bits() as i8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantized(x: &[f32; 32]) -> ([i8; 32], f32) {
        let (mut q, mut s) = ([0; 32], [0.0]);
        quantize_row::<32>(x, &mut q, &mut s);
        (q, s[0])
    }

    #[test]
    fn codes_follow_the_definition() {
        let mut state = 1u64;
        for case in 0..4000 {
            let x: [f32; 32] = std::array::from_fn(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let u = (state >> 40) as f32 / 8388608.0 - 1.0;
                u * 2f32.powi(case % 60 - 30)
            });
            let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
            let (q, s) = quantized(&x);
            assert_eq!(s.to_bits(), (amax / 127.0).to_bits());
            let inv = 127.0 / amax;
            for (q, v) in q.iter().zip(x) {
                assert_eq!(f32::from(*q), (v * inv).round_ties_even());
            }
            assert!(q.contains(&127) || q.contains(&-127));
        }
    }

    #[test]
    fn two_orders_hold_fifteen_bits() {
        let forms = Forms::NONE.with(ActForm::F32).with(ActForm::Q32).with(ActForm::Q256);
        let x: Vec<f32> = (0..2 * 512).map(|i| ((i * 7919 % 1013) as f32 / 506.5 - 1.0) * (1.0 + (i % 37) as f32)).collect();
        let mut acts = Acts::new(4, 512, forms);
        acts.rows_mut(2).fill(&x);
        let (first, mut second) = acts.rows_mut(4).split_at(2);
        second.fill_second_order(&x, &first);
        for t in 0..2 {
            for i in 0..512 {
                let v = x[t * 512 + i];
                assert_eq!((acts.f32_row(t)[i], acts.f32_row(t + 2)[i]), (v, 0.0));
                let narrow = |t: usize| acts.scales32(t)[i / 32] * f32::from(acts.codes32(t)[i]);
                let wide = |t: usize| acts.scales256(t)[i / 256] * f32::from(acts.codes256(t)[i]);
                assert!((narrow(t) + narrow(t + 2) - v).abs() <= acts.scales32(t)[i / 32] / 250.0);
                assert!((wide(t) + wide(t + 2) - v).abs() <= acts.scales256(t)[i / 256] / 250.0);
                assert!((narrow(t) - v).abs() <= acts.scales32(t)[i / 32] * 0.5001);
            }
            assert_eq!(acts.sums32(t + 2)[3], acts.codes32(t + 2)[96..128].iter().map(|c| i32::from(*c)).sum::<i32>());
        }
    }

    #[test]
    fn ties_go_to_even() {
        let mut x = [0.0; 32];
        x[..6].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]);
        assert_eq!(quantized(&x).0[..6], [127, 0, 2, 2, 0, -2]);
    }

    #[test]
    fn tiny_blocks_are_zero() {
        let tiny = 2f32.powi(-100);
        assert_eq!(tiny, TINY);
        let mut x = [0.0; 32];
        x[3] = f32::from_bits(tiny.to_bits() - 1);
        assert_eq!(quantized(&x), ([0; 32], 0.0));
        x[3] = -tiny;
        let (q, s) = quantized(&x);
        assert_eq!((q[3], s), (-127, tiny / 127.0));
    }

    #[test]
    fn an_infinite_activation_is_not_lost() {
        let mut x = [1.0; 32];
        x[3] = f32::INFINITY;
        assert!(!quantized(&x).1.is_finite());
        x[3] = f32::NAN;
        assert!(!quantized(&x).1.is_finite());
    }

    #[test]
    fn every_form_is_filled() {
        let forms = Forms::NONE.with(ActForm::F32).with(ActForm::Q32).with(ActForm::Q256);
        let mut acts = Acts::new(3, 512, forms);
        let x: Vec<f32> = (0..512).map(|i| (i as f32 - 200.0) * 0.01).collect();
        acts.rows_mut(2).split_at(1).1.fill(&x);
        assert_eq!(acts.f32_row(1), x);
        assert!(acts.f32_row(0).iter().all(|v| *v == 0.0));
        assert!(acts.f32_row(2).iter().all(|v| *v == 0.0));
        for b in 0..16 {
            let sum: i32 = acts.codes32(1)[b * 32..][..32].iter().map(|&c| i32::from(c)).sum();
            assert_eq!(acts.sums32(1)[b], sum);
        }
        for b in 0..32 {
            let sum: i16 = acts.codes256(1)[b * 16..][..16].iter().map(|&c| i16::from(c)).sum();
            assert_eq!(acts.sums256(1)[b], sum);
        }
        assert_eq!(acts.scales256(1).len(), 2);
        assert_eq!(Forms::of([DType::Q8_0, DType::Q4_K, DType::BF16]), forms);
    }
}
