//! One weight row times one activation row.

use super::{ACT_BLOCK_NARROW, ACT_BLOCK_WIDE, Acts, CHAINS_NARROW, CHAINS_WIDE, FLOAT_LANES, segment};
use crate::math::butterfly;
use strata_quant::{BlockFormat, ByteArray, DType, FloatFormat, IntegerForm, Visitor};

/// `row . acts[t]`, the definition. `row` holds whole blocks of `dtype`, as many as `acts` has columns for; what is
/// beyond the shorter of the two does not count.
///
/// # Panics
/// If `acts` does not hold the form of `dtype` or has no row `t`.
#[inline(always)]
pub fn dot_row(dtype: DType, row: &[u8], acts: &Acts, t: usize) -> f32 {
    dtype.visit(Dot { row, acts, t })
}

struct Dot<'a> {
    row: &'a [u8],
    acts: &'a Acts,
    t: usize,
}

impl Visitor for Dot<'_> {
    type Out = f32;

    /// The lane tree over a row of float weights.
    #[inline(always)]
    fn float<F: FloatFormat>(self) -> f32 {
        let mut p = [0.0f32; FLOAT_LANES];
        let (w, w_tail) = F::Bytes::all_of(self.row).as_chunks::<FLOAT_LANES>();
        let (a, a_tail) = self.acts.f32_row(self.t).as_chunks::<FLOAT_LANES>();
        for (w, a) in w.iter().zip(a) {
            for l in 0..FLOAT_LANES {
                p[l] = F::value(w[l]).mul_add(a[l], p[l]);
            }
        }
        for ((p, w), a) in p.iter_mut().zip(w_tail).zip(a_tail) {
            *p = F::value(*w).mul_add(*a, *p);
        }
        butterfly(p)
    }

    /// The sum of the chains over the row's blocks.
    #[inline(always)]
    fn block<F: BlockFormat>(self) -> f32 {
        const { assert!(F::MAX_SUM <= i32::MAX as i64, "the integer sums of a block fit an i32") };
        let (chains, codes, scales, shared) = if F::LEN == ACT_BLOCK_WIDE {
            (CHAINS_WIDE, self.acts.codes256(self.t), self.acts.scales256(self.t), ACT_BLOCK_WIDE)
        } else {
            (CHAINS_NARROW, self.acts.codes32(self.t), self.acts.scales32(self.t), ACT_BLOCK_NARROW)
        };
        let blocks = F::Bytes::all_of(self.row);
        let mut y = 0.0;
        for c in 0..chains {
            let mut chain = 0.0f32;
            for s in segment(c, blocks.len(), chains) {
                let w = F::integers(&blocks[s]);
                let a = &codes[s * F::LEN..][..F::LEN];
                for term in 0..F::Integers::TERMS {
                    let d_a = scales[(s * F::LEN + term * F::LEN / F::Integers::TERMS) / shared];
                    let (isum, msum) = sums::<F>(&w, a, term);
                    chain = (w.d(term) * d_a).mul_add(isum as f32, chain);
                    if F::MAX_MIN > 0 {
                        chain = (-(w.dmin() * d_a)).mul_add(msum as f32, chain);
                    }
                }
            }
            y = if c == 0 { chain } else { y + chain };
        }
        y
    }
}

/// The integer sums of a term: of sub-scale * code * activation, and of minimum * activation.
#[inline(always)]
fn sums<F: BlockFormat>(w: &F::Integers, a: &[i8], term: usize) -> (i32, i32) {
    let subs = F::Integers::SUBS / F::Integers::TERMS;
    let (mut isum, mut msum) = (0, 0);
    for j in term * subs..(term + 1) * subs {
        let a = &a[j * F::SPAN..][..F::SPAN];
        let codes = &w.codes()[j * F::SPAN..][..F::SPAN];
        let dot: i32 = codes.iter().zip(a).map(|(&w, &a)| i32::from(w) * i32::from(a)).sum();
        isum += i32::from(w.sub(j)) * dot;
        if F::MAX_MIN > 0 {
            msum += i32::from(w.min(j)) * a.iter().map(|&q| i32::from(q)).sum::<i32>();
        }
    }
    (isum, msum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::{ActForm, Forms, act_form};
    use half::f16;
    use strata_quant::testing::{SplitMix64, put_scales, random_blocks};
    use strata_quant::{dequantize, half_at};

    /// What the definition says of a format, apart from the code that takes its blocks apart.
    struct Facts {
        dtype: DType,
        /// Terms a block, and for a number of a term its scale, by its block.
        terms: usize,
        d: fn(&[u8], usize) -> f64,
        /// Scale of the minima; values plus this times an integer are multiples of `d`.
        dmin: Option<fn(&[u8]) -> f64>,
    }

    fn half(block: &[u8], at: usize) -> f64 {
        f64::from(half_at(block, at))
    }

    const fn plain(dtype: DType, d: fn(&[u8], usize) -> f64) -> Facts {
        Facts { dtype, terms: 1, d, dmin: None }
    }

    const FORMATS: [Facts; 22] = [
        plain(DType::Q8_0, |b, _| half(b, 0)),
        plain(DType::Q4_0, |b, _| half(b, 0)),
        plain(DType::Q5_0, |b, _| half(b, 0)),
        plain(DType::IQ4_NL, |b, _| half(b, 0)),
        plain(DType::MXFP4, |b, _| 2f64.powi(i32::from(b[0]) - 128)),
        Facts { terms: 2, ..plain(DType::Q2_0, |b, _| half(b, 0)) },
        Facts { terms: 4, ..plain(DType::NVFP4, |b, j| half_ue4m3(b[j])) },
        Facts { dmin: Some(|b| -half(b, 2)), ..plain(DType::Q4_1, |b, _| half(b, 0)) },
        Facts { dmin: Some(|b| -half(b, 2)), ..plain(DType::Q5_1, |b, _| half(b, 0)) },
        Facts { dmin: Some(|b| half(b, 82)), ..plain(DType::Q2_K, |b, _| half(b, 80)) },
        Facts { dmin: Some(|b| half(b, 2)), ..plain(DType::Q4_K, |b, _| half(b, 0)) },
        Facts { dmin: Some(|b| half(b, 2)), ..plain(DType::Q5_K, |b, _| half(b, 0)) },
        plain(DType::Q3_K, |b, _| half(b, 108)),
        plain(DType::Q6_K, |b, _| half(b, 208)),
        plain(DType::IQ4_XS, |b, _| half(b, 0)),
        plain(DType::IQ3_S, |b, _| half(b, 0)),
        plain(DType::IQ3_XXS, |b, _| half(b, 0) / 4.0),
        plain(DType::IQ2_S, |b, _| half(b, 0) / 8.0),
        plain(DType::IQ2_XS, |b, _| half(b, 0) / 8.0),
        plain(DType::IQ2_XXS, |b, _| half(b, 0) / 8.0),
        plain(DType::IQ1_S, |b, _| half(b, 0) / 8.0),
        plain(DType::IQ1_M, |b, _| {
            let quarter = |i: usize| u16::from(b[49 + 2 * i] >> 4) << (4 * i);
            half(&(0..4).map(quarter).sum::<u16>().to_le_bytes(), 0) / 8.0
        }),
    ];

    fn half_ue4m3(byte: u8) -> f64 {
        let (e, m) = (i32::from(byte >> 3 & 15), f64::from(byte & 7) / 8.0);
        if byte == 0x7f {
            0.0
        } else if e == 0 {
            m * 2f64.powi(-7)
        } else {
            (1.0 + m) * 2f64.powi(e - 8)
        }
    }

    /// The minimum of value `i` of a block, an integer times `dmin`.
    fn minimum(dtype: DType, b: &[u8], i: usize) -> i64 {
        i64::from(match dtype {
            DType::Q2_K => b[i / 16] >> 4,
            DType::Q4_K | DType::Q5_K if i < 128 => b[8 + i / 32] & 63,
            DType::Q4_K | DType::Q5_K => b[8 + i / 32] >> 4 | b[4 + i / 32] >> 6 << 4,
            _ => 1,
        })
    }

    /// The dot product from decoded values: each is the scale times an integer, less a minimum, and the integers sum in i64.
    fn naive(f: &Facts, row: &[u8], acts: &Acts, chains: usize) -> f32 {
        let blocks: Vec<&[u8]> = row.chunks_exact(f.dtype.block_bytes()).collect();
        let len = f.dtype.block_len();
        let act = |i: usize| match act_form(f.dtype) {
            ActForm::Q256 => (acts.codes256(0)[i], acts.scales256(0)[i / 256]),
            _ => (acts.codes32(0)[i], acts.scales32(0)[i / 32]),
        };
        let block = |mut chain: f32, s: usize| {
            let b = blocks[s];
            let mut values = vec![0.0; len];
            dequantize(f.dtype, b, &mut values).unwrap();
            for term in 0..f.terms {
                let d = (f.d)(b, term);
                let dmin = f.dmin.map(|dmin| dmin(b));
                let (mut isum, mut msum) = (0i64, 0i64);
                let span = len / f.terms;
                for (i, &value) in values.iter().enumerate().skip(term * span).take(span) {
                    let code = i64::from(act(s * len + i).0);
                    let min = dmin.map_or(0.0, |dmin| dmin * minimum(f.dtype, b, i) as f64);
                    msum += minimum(f.dtype, b, i) * code;
                    let integer = if d == 0.0 { 0.0 } else { (f64::from(value) + min) / d };
                    // a difference of value and minimum was rounded once
                    let rounding = if dmin.is_some() { 1e-7 * (f64::from(value).abs() + min.abs()) } else { 0.0 };
                    let whole = integer.round();
                    assert!((integer - whole).abs() * d.abs() <= rounding, "{}: {integer}", f.dtype);
                    isum += whole as i64 * code;
                }
                let d_a = act(s * len + len / f.terms * term).1;
                chain = (d as f32 * d_a).mul_add(isum as f32, chain);
                if let Some(dmin) = dmin {
                    chain = (-(dmin as f32 * d_a)).mul_add(msum as f32, chain);
                }
            }
            chain
        };
        let chain = |c: usize| (c * blocks.len() / chains..(c + 1) * blocks.len() / chains).fold(0f32, block);
        (1..chains).fold(chain(0), |y, c| y + chain(c))
    }

    /// Rows with codes as they come, then with every bit but those of the scales set, then clear; and activations.
    fn cases(dtype: DType) -> impl Iterator<Item = (Vec<u8>, Acts)> {
        let mut rng = SplitMix64::new(u64::from(dtype.id()));
        (0..300).map(move |case| {
            let blocks = 1 + case % 23;
            let mut row = random_blocks(dtype, blocks, &mut rng);
            if case % 5 == 0 {
                let fill = if case % 2 == 0 { 0xff } else { 0 };
                row.fill(fill);
                put_scales(dtype, &mut row, || f16::from_bits(0x1800 | rng.next_u64() as u16 & 0x83ff));
            }
            let x: Vec<f32> = (0..blocks * dtype.block_len()).map(|_| if case % 10 == 0 { 1.0 } else { rng.next_f32() }).collect();
            let mut acts = Acts::new(1, x.len(), Forms::of([dtype]));
            acts.rows_mut(1).fill(&x);
            (row, acts)
        })
    }

    #[test]
    fn blocks_are_integers_times_scales_by_bits() {
        assert!(DType::all().filter(|d| !d.is_float()).all(|d| FORMATS.iter().any(|f| f.dtype == d)));
        for f in &FORMATS {
            let chains = if f.dtype.block_len() == 256 { CHAINS_WIDE } else { CHAINS_NARROW };
            let (mut other_order, mut other_terms) = (0, 0);
            for (row, acts) in cases(f.dtype) {
                let y = dot_row(f.dtype, &row, &acts, 0);
                assert_eq!(y.to_bits(), naive(f, &row, &acts, chains).to_bits(), "{}", f.dtype);
                other_order += usize::from(y.to_bits() != naive(f, &row, &acts, chains / 2).to_bits());
                // NVFP4's values are no integers times its first scale
                let joined = f.dtype == DType::Q2_0 && y.to_bits() != naive(&Facts { terms: 1, ..*f }, &row, &acts, chains).to_bits();
                other_terms += usize::from(joined);
            }
            assert!(other_order > 50, "{}: half the chains seen in {other_order} rows", f.dtype);
            assert!(f.dtype != DType::Q2_0 || other_terms > 50, "one term a block seen in {other_terms} rows");
        }
    }

    #[test]
    fn blocks_are_near_f64() {
        for f in &FORMATS {
            let span = if f.dtype.block_len() == 256 { 256 } else { 32 };
            for (row, acts) in cases(f.dtype) {
                let mut w = vec![0.0; acts.cols()];
                dequantize(f.dtype, &row, &mut w).unwrap();
                let (codes, scales) = if span == 256 { (acts.codes256(0), acts.scales256(0)) } else { (acts.codes32(0), acts.scales32(0)) };
                let a = |i: usize| f64::from(codes[i]) * f64::from(scales[i / span]);
                let exact: f64 = (0..w.len()).map(|i| f64::from(w[i]) * a(i)).sum();
                let largest = |i: usize| {
                    let b = &row[i / f.dtype.block_len() * f.dtype.block_bytes()..];
                    let min = f.dmin.map_or(0.0, |dmin| dmin(b) * minimum(f.dtype, b, i % f.dtype.block_len()) as f64);
                    ((f64::from(w[i]) + min).abs() + min.abs()) * a(i).abs()
                };
                let scale: f64 = (0..w.len()).map(largest).sum();
                let error = (f64::from(dot_row(f.dtype, &row, &acts, 0)) - exact).abs();
                assert!(error <= 4e-7 * scale, "{}: {error:e} of {scale:e}", f.dtype);
            }
        }
    }
}
