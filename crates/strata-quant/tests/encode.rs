//! Encoders: error, extreme inputs, importance.

use strata_quant::testing::SplitMix64;
use strata_quant::{DType, QuantizeError, can_encode, dequantize, first_non_finite, quantize, quantize_weighted};

/// Values that are nearly normal, with a scale for each 256 and now and then a large one, as weights have.
fn weights(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = SplitMix64::new(seed);
    let mut scale = 1.0;
    (0..n)
        .map(|i| {
            if i % 256 == 0 {
                scale = 0.02 * (1.5 + rng.next_f32());
            }
            let normal = (0..12).map(|_| rng.next_f32()).sum::<f32>() * 0.5;
            scale * if rng.next_u64().is_multiple_of(300) { 3.0 * normal } else { normal }
        })
        .collect()
}

fn decoded(dtype: DType, values: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut blocks = vec![0xa5; dtype.row_bytes(values.len()).unwrap()];
    quantize_weighted(dtype, values, importance, &mut blocks).unwrap();
    assert_eq!(first_non_finite(dtype, &blocks), None, "{dtype}");
    let mut out = vec![f32::NAN; values.len()];
    dequantize(dtype, &blocks, &mut out).unwrap();
    out
}

/// Root of the weighted mean square of the error, over that of the values.
fn relative(values: &[f32], out: &[f32], weight: impl Fn(usize) -> f64) -> f64 {
    let sum = |f: &dyn Fn(usize) -> f64| (0..values.len()).map(|i| weight(i) * f(i).powi(2)).sum::<f64>();
    (sum(&|i| f64::from(values[i]) - f64::from(out[i])) / sum(&|i| f64::from(values[i]))).sqrt()
}

/// Bits of a code, and values that share a scale: what the naive encoder is given.
fn naive_of(dtype: DType) -> (u32, usize) {
    match dtype {
        DType::Q8_0 => (8, 32),
        DType::Q6_K => (6, 16),
        DType::Q5_0 | DType::Q5_1 | DType::Q5_K => (5, 32),
        DType::Q4_0 | DType::Q4_1 | DType::Q4_K | DType::IQ4_NL | DType::IQ4_XS | DType::MXFP4 => (4, 32),
        DType::NVFP4 => (4, 16),
        DType::Q3_K | DType::IQ3_S | DType::IQ3_XXS => (3, 16),
        _ => (2, 16),
    }
}

/// The nearest multiples of the largest magnitude over the largest code.
fn naive((bits, span): (u32, usize), values: &[f32]) -> Vec<f32> {
    let top = ((1 << (bits - 1)) - 1) as f32;
    let block = |v: &[f32]| {
        let d = v.iter().fold(0.0f32, |m, x| m.max(x.abs())) / top;
        v.iter().map(|x| d * (x / d).round()).collect::<Vec<_>>()
    };
    values.chunks(span).flat_map(block).collect()
}

fn encoders() -> impl Iterator<Item = DType> {
    DType::all().filter(|d| can_encode(*d))
}

/// The largest relative error of nearly normal values, and with it a share of the naive encoder's that is not exceeded.
const BOUNDS: [(DType, f64, f64); 20] = [
    (DType::Q8_0, 0.0060, 1.001),
    (DType::Q6_K, 0.0176, 0.9),
    (DType::Q5_K, 0.0358, 0.85),
    (DType::Q5_0, 0.0450, 1.0),
    (DType::Q5_1, 0.0390, 0.9),
    (DType::Q4_K, 0.0718, 0.8),
    (DType::Q4_0, 0.0900, 0.95),
    (DType::Q4_1, 0.0800, 0.85),
    (DType::IQ4_NL, 0.0765, 0.8),
    (DType::IQ4_XS, 0.0773, 0.85),
    (DType::MXFP4, 0.1170, 1.2),
    (DType::NVFP4, 0.0880, 1.1),
    (DType::Q3_K, 0.1500, 0.8),
    (DType::IQ3_S, 0.1370, 0.75),
    (DType::IQ3_XXS, 0.1850, 1.0),
    (DType::Q2_K, 0.2710, 0.55),
    (DType::IQ2_S, 0.2500, 0.5),
    (DType::IQ2_XS, 0.2970, 0.6),
    (DType::IQ2_XXS, 0.3450, 0.7),
    (DType::Q2_0, 0.3800, 0.8),
];

#[test]
fn errors_keep_to_their_bounds() {
    let x = weights(256 * 160, 1);
    for dtype in encoders().filter(|d| !d.is_float()) {
        let error = relative(&x, &decoded(dtype, &x, None), |_| 1.0);
        let naive = relative(&x, &naive(naive_of(dtype), &x), |_| 1.0);
        println!("{dtype}: {error:.5}, {:.3} of naive", error / naive);
        let (_, bound, share) = BOUNDS.iter().find(|b| b.0 == dtype).unwrap();
        assert!(error <= *bound && error <= share * naive, "{dtype}: {error}, naive {naive}");
        // an encoder that did nothing, or lost a bit, would be seen
        assert!(error > bound * 0.8, "{dtype}: {error}");
    }
}

#[test]
fn importance_lowers_the_error_of_what_is_important() {
    let x = weights(256 * 60, 2);
    let mut rng = SplitMix64::new(3);
    let importance: Vec<f32> = x.iter().map(|_| (8.0 * rng.next_f32()).exp2()).collect();
    let importance: Vec<f32> = importance[..2560].iter().copied().cycle().take(x.len()).collect();
    for dtype in encoders().filter(|d| !d.is_float() && *d != DType::Q8_0) {
        let error = |i: Option<&[f32]>| relative(&x, &decoded(dtype, &x, i), |k| f64::from(importance[k]));
        let (without, with) = (error(None), error(Some(&importance)));
        println!("{dtype}: {without:.5} {with:.5}");
        // MXFP4 has three powers of two to choose from
        let share = if dtype == DType::MXFP4 { 0.99 } else { 0.95 };
        assert!(with < share * without, "{dtype}: {with} with importance, {without} without");
    }
}

#[test]
fn extreme_values_give_finite_blocks() {
    let mut rng = SplitMix64::new(4);
    let mut cases: Vec<Vec<f32>> = vec![
        vec![0.0; 256],
        vec![-0.0; 256],
        vec![f32::MAX; 256],
        vec![f32::MIN; 256],
        vec![f32::from_bits(1); 256],
        vec![1.0; 256],
        vec![-3e-5; 256],
        (0..256).map(|i| if i % 2 == 0 { f32::MAX } else { f32::MIN }).collect(),
        (0..256).map(|i| if i == 77 { 1e30 } else { 1e-30 }).collect(),
        (0..256).map(|i| if i == 77 { -5.0 } else { 0.0 }).collect(),
        (0..256).map(|i| if i < 32 { 1.0 } else { 0.0 }).collect(),
        (0..256).map(|i| if i < 32 { 65504.0 * 200.0 } else { 1e-7 }).collect(),
    ];
    for exponent in (-149..=127).step_by(6) {
        cases.push((0..256).map(|_| rng.next_f32() * 2f32.powi(exponent)).collect());
        // one sign only
        cases.push((0..256).map(|_| rng.next_f32().abs() * -2f32.powi(exponent)).collect());
    }
    for dtype in encoders() {
        for x in &cases {
            for importance in [None, Some(vec![0.0; 256]), Some(x.iter().map(|x| x.abs().min(1e30)).collect())] {
                let out = decoded(dtype, x, importance.as_deref());
                assert!(out.iter().all(|v| v.is_finite()), "{dtype}: {:?}", &x[..4]);
                let (amax, largest) = (x.iter().fold(0.0f32, |m, v| m.max(v.abs())), out.iter().fold(0.0f32, |m, v| m.max(v.abs())));
                // nothing grows to much more than the largest value (and the least scale)
                assert!(largest <= 1.6 * amax + 1e-5, "{dtype}: {largest:e} of {amax:e}, {:?}", &x[..4]);
                // values in the range of the scales keep their size
                if importance.is_none() && (1e-2..1e4).contains(&amax) {
                    // the IQ2 formats have no small values beside a large one: then no error is above that of zeros
                    let bound = if dtype.name().starts_with("IQ2") { 1.01 } else { 0.8 };
                    assert!(relative(x, &out, |_| 1.0) <= bound, "{dtype}: {:?} became {:?}", &x[..4], &out[..4]);
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_an_error() {
    let mut x = vec![1.0f32; 256];
    let mut out = vec![0; 144];
    x[9] = f32::NAN;
    assert_eq!(quantize(DType::Q4_K, &x, &mut out), Err(QuantizeError::NotFinite(9)));
    x[9] = f32::INFINITY;
    assert_eq!(quantize(DType::Q4_K, &x, &mut out), Err(QuantizeError::NotFinite(9)));
    x[9] = 1.0;
    let with = |i: &[f32]| quantize_weighted(DType::Q4_K, &x, Some(i), &mut [0; 144]);
    assert_eq!(with(&[1.0; 255]), Err(QuantizeError::Importance { expected: 256, found: 255 }));
    let mut importance = vec![1.0; 256];
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        importance[3] = bad;
        assert_eq!(with(&importance), Err(QuantizeError::BadImportance(3)));
    }
}

/// Decoded blocks encode to blocks of nearly the same values: what is on a format's grid stays there, but for ties of scales.
#[test]
fn values_of_a_format_stay_nearly_what_they_are() {
    let x = weights(256 * 16, 5);
    for dtype in encoders().filter(|d| !d.is_float()) {
        let once = decoded(dtype, &x, None);
        let twice = decoded(dtype, &once, None);
        let drift = relative(&once, &twice, |_| 1.0);
        let error = relative(&x, &once, |_| 1.0);
        println!("{dtype}: drift {drift:.5}, error {error:.5}");
        assert!(drift <= 0.75 * error, "{dtype}: {drift} after {error}");
    }
}
