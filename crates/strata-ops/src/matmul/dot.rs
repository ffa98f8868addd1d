//! One weight row times one activation row.

use super::blocks::{
    IQ4_VALUES, half_at, iq2_xs_codes, iq2_xs_scales, iq3_s_codes, iq3_s_scales, iq4_xs_codes, iq4_xs_scales, k_scales, nibbles32,
    q4_k_codes, q5_k_codes, q6_k_codes,
};
use super::{Acts, CHAINS_NARROW, CHAINS_WIDE, FLOAT_LANES, segment};
use crate::math::butterfly;
use half::{bf16, f16};
use strata_quant::DType;

/// `row . acts[t]`, the definition. `row` holds whole blocks of `dtype`, as many as `acts` has columns for; what is
/// beyond the shorter of the two does not count.
///
/// # Panics
/// If `acts` does not hold the form of `dtype` or has no row `t`.
#[inline(always)]
pub fn dot_row(dtype: DType, row: &[u8], acts: &Acts, t: usize) -> f32 {
    match dtype {
        DType::F32 => float(row, f32::from_le_bytes, acts.f32_row(t)),
        DType::F16 => float(row, |b| f16::from_le_bytes(b).to_f32_const(), acts.f32_row(t)),
        DType::BF16 => float(row, |b| bf16::from_le_bytes(b).to_f32(), acts.f32_row(t)),
        DType::Q8_0 => narrow::<34>(row, acts, t, |b| std::array::from_fn(|i| b[2 + i] as i8)),
        DType::Q4_0 => narrow::<18>(row, acts, t, |b| nibbles32(&b[2..], |q| q as i8 - 8)),
        DType::IQ4_NL => narrow::<18>(row, acts, t, |b| nibbles32(&b[2..], |q| IQ4_VALUES[q as usize])),
        DType::Q4_K => wide_min::<144>(row, acts, t, q4_k_codes),
        DType::Q5_K => wide_min::<176>(row, acts, t, q5_k_codes),
        DType::Q6_K => wide::<210, 16>(row, acts, t, |b| (half_at(b, 208), std::array::from_fn(|j| b[192 + j] as i8), q6_k_codes(b))),
        DType::IQ4_XS => wide::<136, 8>(row, acts, t, |b| (half_at(b, 0), iq4_xs_scales(b), iq4_xs_codes(b))),
        DType::IQ3_S => wide::<110, 8>(row, acts, t, |b| (half_at(b, 0), iq3_s_scales(b), iq3_s_codes(b))),
        // an eighth of a half is exact
        DType::IQ2_XS => wide::<74, 16>(row, acts, t, |b| (half_at(b, 0) * 0.125, iq2_xs_scales(b), iq2_xs_codes(b))),
    }
}

/// The lane tree over a row of float weights.
#[inline(always)]
fn float<const BYTES: usize>(row: &[u8], value: impl Fn([u8; BYTES]) -> f32, a: &[f32]) -> f32 {
    let mut p = [0.0f32; FLOAT_LANES];
    let (w, w_tail) = row.as_chunks::<BYTES>().0.as_chunks::<FLOAT_LANES>();
    let (a, a_tail) = a.as_chunks::<FLOAT_LANES>();
    for (w, a) in w.iter().zip(a) {
        for l in 0..FLOAT_LANES {
            p[l] = value(w[l]).mul_add(a[l], p[l]);
        }
    }
    for ((p, w), a) in p.iter_mut().zip(w_tail).zip(a_tail) {
        *p = value(*w).mul_add(*a, *p);
    }
    butterfly(p)
}

/// What a block adds to its chain: `fma(d, isum, chain)`, then for formats with minima `fma(-dmin, msum, chain)`.
struct Term {
    /// Weight scale times activation scale.
    d: f32,
    isum: i32,
    min: Option<(f32, i32)>,
}

/// The sum of `CHAINS` chains over the row's blocks, by the term of a block. (The FMAs are here, not in the closures,
/// since a closure that is not inlined lacks the instruction.)
#[inline(always)]
fn chains<const BYTES: usize, const CHAINS: usize>(row: &[u8], term: impl Fn(usize, &[u8; BYTES]) -> Term) -> f32 {
    let blocks = row.as_chunks::<BYTES>().0;
    let mut y = 0.0;
    for c in 0..CHAINS {
        let mut chain = 0.0f32;
        for s in segment(c, blocks.len(), CHAINS) {
            let term = term(s, &blocks[s]);
            chain = term.d.mul_add(term.isum as f32, chain);
            if let Some((dmin, msum)) = term.min {
                chain = (-dmin).mul_add(msum as f32, chain);
            }
        }
        y = if c == 0 { chain } else { y + chain };
    }
    y
}

/// Formats with 32-wide blocks that begin with their `f16` scale.
#[inline(always)]
fn narrow<const BYTES: usize>(row: &[u8], acts: &Acts, t: usize, codes: impl Fn(&[u8; BYTES]) -> [i8; 32]) -> f32 {
    let a = acts.codes32(t).as_chunks::<32>().0;
    let scales = acts.scales32(t);
    chains::<BYTES, CHAINS_NARROW>(row, |s, block| Term { d: half_at(block, 0) * scales[s], isum: idot(&codes(block), &a[s]), min: None })
}

/// 256-wide formats without minima; `parts` gives a block's scale, sub-scales and codes.
#[inline(always)]
fn wide<const BYTES: usize, const SUBS: usize>(
    row: &[u8],
    acts: &Acts,
    t: usize,
    parts: impl Fn(&[u8; BYTES]) -> (f32, [i8; SUBS], [i8; 256]),
) -> f32 {
    let a = acts.codes256(t).as_chunks::<256>().0;
    let scales = acts.scales256(t);
    chains::<BYTES, CHAINS_WIDE>(row, |s, block| {
        let (d, subs, codes) = parts(block);
        let span = 256 / SUBS;
        let dots = codes.chunks_exact(span).zip(a[s].chunks_exact(span)).map(|(w, a)| idot(w, a));
        Term { d: d * scales[s], isum: dots.zip(subs).map(|(dot, sub)| i32::from(sub) * dot).sum(), min: None }
    })
}

/// Q4_K and Q5_K: eight sub-blocks with a scale and a minimum each.
#[inline(always)]
fn wide_min<const BYTES: usize>(row: &[u8], acts: &Acts, t: usize, codes: impl Fn(&[u8; BYTES]) -> [i8; 256]) -> f32 {
    let a = acts.codes256(t).as_chunks::<256>().0;
    let scales = acts.scales256(t);
    chains::<BYTES, CHAINS_WIDE>(row, |s, block| {
        let (subs, mins) = k_scales(&block[4..16]);
        let codes = codes(block);
        let (mut isum, mut msum) = (0, 0);
        for j in 0..8 {
            let a = &a[s][j * 32..][..32];
            isum += i32::from(subs[j]) * idot(&codes[j * 32..][..32], a);
            msum += i32::from(mins[j]) * a.iter().map(|&q| i32::from(q)).sum::<i32>();
        }
        Term { d: half_at(block, 0) * scales[s], isum, min: Some((half_at(block, 2) * scales[s], msum)) }
    })
}

/// The integer dot product.
#[inline(always)]
fn idot(w: &[i8], a: &[i8]) -> i32 {
    w.iter().zip(a).map(|(&w, &a)| i32::from(w) * i32::from(a)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::{ActForm, Forms};
    use strata_quant::dequantize;
    use strata_quant::testing::{SplitMix64, random_blocks};

    /// A 256-wide format without minima.
    struct Format {
        dtype: DType,
        /// Offset of the half-precision scale.
        scale_at: usize,
        /// The definition's scale over the stored one.
        unit: f64,
        /// Largest magnitudes of codes and of sub-scales.
        code: i64,
        sub: i64,
    }

    const FORMATS: [Format; 4] = [
        Format { dtype: DType::Q6_K, scale_at: 208, unit: 1.0, code: 32, sub: 128 },
        Format { dtype: DType::IQ4_XS, scale_at: 0, unit: 1.0, code: 127, sub: 32 },
        Format { dtype: DType::IQ3_S, scale_at: 0, unit: 1.0, code: 15, sub: 31 },
        Format { dtype: DType::IQ2_XS, scale_at: 0, unit: 0.125, code: 43, sub: 31 },
    ];

    /// The dot product from decoded values: each is the scale times an integer, and the integers sum in i64.
    fn naive(f: &Format, row: &[u8], acts: &Acts, chains: usize) -> f32 {
        let blocks: Vec<&[u8]> = row.chunks_exact(f.dtype.block_bytes()).collect();
        let chain = |c: usize| {
            (c * blocks.len() / chains..(c + 1) * blocks.len() / chains).fold(0f32, |chain, s| {
                let d = f64::from(half_at(blocks[s], f.scale_at)) * f.unit;
                let mut values = [0.0; 256];
                dequantize(f.dtype, blocks[s], &mut values).unwrap();
                let isum: i64 = (0..256)
                    .map(|i| {
                        let integer = f64::from(values[i]) / d;
                        assert!(integer.fract() == 0.0 && integer.abs() <= (f.code * f.sub) as f64, "{}: {integer}", f.dtype);
                        integer as i64 * i64::from(acts.codes256(0)[s * 256 + i])
                    })
                    .sum();
                (d as f32 * acts.scales256(0)[s]).mul_add(isum as f32, chain)
            })
        };
        (1..chains).fold(chain(0), |y, c| y + chain(c))
    }

    /// Rows with codes as they come, then with every bit but those of the scales set, then clear; and activations.
    fn cases(f: &Format) -> impl Iterator<Item = (Vec<u8>, Acts)> {
        let mut rng = SplitMix64::new(u64::from(f.dtype.id()));
        (0..300).map(move |case| {
            let blocks = 1 + case % 13;
            let mut row = random_blocks(f.dtype, blocks, &mut rng);
            for block in row.chunks_exact_mut(f.dtype.block_bytes()).filter(|_| case % 5 == 0) {
                let scale = [block[f.scale_at], block[f.scale_at + 1]];
                block.fill(if case % 2 == 0 { 0xff } else { 0 });
                block[f.scale_at..f.scale_at + 2].copy_from_slice(&scale);
            }
            let x: Vec<f32> = (0..blocks * 256).map(|_| if case % 10 == 0 { 1.0 } else { rng.next_f32() }).collect();
            let mut acts = Acts::new(1, x.len(), Forms::NONE.with(ActForm::Q256));
            acts.rows_mut(1).fill(&x);
            (row, acts)
        })
    }

    #[test]
    fn wide_formats_are_integers_times_a_scale_by_bits() {
        for f in &FORMATS {
            let mut other_order = 0;
            for (row, acts) in cases(f) {
                let y = dot_row(f.dtype, &row, &acts, 0);
                assert_eq!(y.to_bits(), naive(f, &row, &acts, CHAINS_WIDE).to_bits(), "{}", f.dtype);
                other_order += usize::from(y.to_bits() != naive(f, &row, &acts, 2).to_bits());
            }
            assert!(other_order > 50, "{}: 2 chains instead of 4 seen in {other_order} rows", f.dtype);
        }
    }

    #[test]
    fn wide_formats_are_near_f64() {
        for f in &FORMATS {
            for (row, acts) in cases(f) {
                let mut w = vec![0.0; acts.cols()];
                dequantize(f.dtype, &row, &mut w).unwrap();
                let term = |i: usize| f64::from(w[i]) * f64::from(acts.codes256(0)[i]) * f64::from(acts.scales256(0)[i / 256]);
                let exact: f64 = (0..w.len()).map(term).sum();
                let scale: f64 = (0..w.len()).map(|i| term(i).abs()).sum();
                let error = (f64::from(dot_row(f.dtype, &row, &acts, 0)) - exact).abs();
                assert!(error <= 4e-7 * scale, "{}: {error:e} of {scale:e}", f.dtype);
            }
        }
    }

    #[test]
    fn block_sums_fit_an_i32() {
        for f in &FORMATS {
            assert!(256 * 127 * f.code * f.sub <= i64::from(i32::MAX), "{}", f.dtype);
        }
    }
}
