//! Sizes, scale checks and the random blocks themselves.

use strata_quant::testing::{SplitMix64, random_blocks};
use strata_quant::{DType, QuantizeError, SizeError, dequantize, first_non_finite, quantize};

/// Offsets of the upper bytes of all scales in a block (of the value in a float type).
fn scale_tops(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::F32 => &[3],
        DType::Q4_K | DType::Q5_K => &[1, 3],
        DType::Q6_K => &[209],
        _ => &[1],
    }
}

#[test]
fn a_bad_scale_is_found_in_any_block_of_any_format() {
    const BLOCKS: usize = 700;
    for dtype in DType::all() {
        let good = random_blocks(dtype, BLOCKS, &mut SplitMix64::new(7));
        assert_eq!(first_non_finite(dtype, &good), None, "{dtype}");
        assert_eq!(first_non_finite(dtype, &[]), None);
        for block in [0, 1, 255, 256, 511, 512, BLOCKS - 1] {
            for top in scale_tops(dtype) {
                // exponent all ones, either sign: 0x7c00 or 0x7f80 and a random mantissa
                for (upper, lower) in [(0x7f, 0x80), (0xff, 0xff)] {
                    let mut bad = good.clone();
                    let at = block * dtype.block_bytes() + top;
                    (bad[at], bad[at - 1]) = (upper, lower);
                    assert_eq!(first_non_finite(dtype, &bad), Some(block), "{dtype} {block}");
                    // a later one does not hide the first, nor does a torn block at the end
                    let end = (BLOCKS - 1) * dtype.block_bytes() + top;
                    (bad[end], bad[end - 1]) = (upper, lower);
                    bad.extend([0xff; 1]);
                    assert_eq!(first_non_finite(dtype, &bad), Some(block), "{dtype} {block}");
                }
            }
        }
    }
}

#[test]
fn largest_finite_scales_pass() {
    for (dtype, largest) in [(DType::Q8_0, 0x7bffu16), (DType::F16, 0xfbff), (DType::BF16, 0x7f7f)] {
        let mut block = random_blocks(dtype, 1, &mut SplitMix64::new(1));
        block[..2].copy_from_slice(&largest.to_le_bytes());
        assert_eq!(first_non_finite(dtype, &block), None, "{dtype}");
    }
    assert_eq!(first_non_finite(DType::F32, &f32::MAX.to_le_bytes()), None);
    // codes of all ones are no scales
    let mut block = [0xff; 34];
    block[..2].fill(0);
    assert_eq!(first_non_finite(DType::Q8_0, &block), None);
}

#[test]
fn sizes_must_match() {
    for dtype in DType::all() {
        let bytes = random_blocks(dtype, 2, &mut SplitMix64::new(3));
        let values = 2 * dtype.block_len();
        let mut out = vec![0.0; values + 1];
        assert_eq!(dequantize(dtype, &bytes, &mut out[..values]), Ok(()));
        let wrong = |bytes: usize, values: usize| Err(SizeError { dtype, bytes, values });
        assert_eq!(dequantize(dtype, &bytes, &mut out), wrong(bytes.len(), values + 1));
        assert_eq!(dequantize(dtype, &bytes, &mut out[..values - 1]), wrong(bytes.len(), values - 1));
        let cut = bytes.len() - 1;
        assert_eq!(dequantize(dtype, &bytes[..cut], &mut out[..values]), wrong(cut, values));
    }
    let error = SizeError { dtype: DType::Q8_0, bytes: 33, values: 32 };
    assert_eq!(quantize(DType::Q8_0, &[0.0; 32], &mut [0; 33]), Err(QuantizeError::Size(error)));
    assert!(error.to_string().contains("Q8_0") && error.to_string().contains("33 bytes and 32 values"));
    let refused = quantize(DType::Q6_K, &[0.0; 256], &mut [0; 210]);
    assert_eq!(refused, Err(QuantizeError::Unsupported(DType::Q6_K)));
}

#[test]
fn every_half_decodes_to_its_value() {
    for bits in 0..=u16::MAX {
        let mut out = [0.0f32];
        dequantize(DType::F16, &bits.to_le_bytes(), &mut out).unwrap();
        let magnitude = match (bits >> 10 & 31, f64::from(bits & 1023)) {
            (0, m) => m * 2f64.powi(-24),
            (31, 0.0) => f64::INFINITY,
            (31, _) => f64::NAN,
            (e, m) => (1024.0 + m) * 2f64.powi(i32::from(e) - 25),
        };
        let want = (if bits >> 15 == 1 { -magnitude } else { magnitude }) as f32;
        assert!(out[0].to_bits() == want.to_bits() || out[0].is_nan() && want.is_nan(), "{bits:#06x}");

        dequantize(DType::BF16, &bits.to_le_bytes(), &mut out).unwrap();
        let want = f32::from_bits(u32::from(bits) << 16);
        assert!(out[0].to_bits() == want.to_bits() || out[0].is_nan() && want.is_nan(), "{bits:#06x}");
    }
}

#[test]
fn the_random_stream_is_splitmix64() {
    // first outputs for seed 1234567, as the algorithm's author publishes them
    let mut rng = SplitMix64::new(1_234_567);
    let got: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
    assert_eq!(got, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    assert!((0..1000).map(|_| rng.next_f32()).all(|x| (-1.0..1.0).contains(&x)));
    let floats = random_blocks(DType::F32, 1000, &mut rng);
    let magnitudes = floats.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).abs());
    assert!(magnitudes.into_iter().all(|x| (2f32.powi(-10)..2f32.powi(-5)).contains(&x)));
}
