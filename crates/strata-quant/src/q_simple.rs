//! Q8_0 and Q4_0: 32 values, one half-precision scale, then the codes.

use half::f16;

use crate::format::{decode_blocks, encode_blocks, half_at};

/// Block: d (2 bytes), 32 signed codes. value = d * code.
pub(crate) fn decode_q8_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 34], v: &mut [f32; 32]| {
        let d = half_at(b, 0);
        for (v, q) in v.iter_mut().zip(&b[2..]) {
            *v = d * f32::from(*q as i8);
        }
    });
}

/// Block: d (2 bytes), 16 bytes of codes: low nibbles are values 0..16, high nibbles 16..32. value = d * (code - 8).
pub(crate) fn decode_q4_0(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 18], v: &mut [f32; 32]| {
        let d = half_at(b, 0);
        for (i, q) in b[2..].iter().enumerate() {
            v[i] = d * f32::from((q & 15) as i8 - 8);
            v[i + 16] = d * f32::from((q >> 4) as i8 - 8);
        }
    });
}

/// d = max |x| / 127; codes by the unrounded d, half away from zero.
pub(crate) fn encode_q8_0(values: &[f32], out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 32], b: &mut [u8; 34]| {
        let amax = v.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let d = amax / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        b[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        for (q, x) in b[2..].iter_mut().zip(v) {
            *q = (x * inverse).round() as i8 as u8;
        }
    });
}

/// d = x / -8 of the (first) value x of largest magnitude, so that it gets code 0; the others round half up.
pub(crate) fn encode_q4_0(values: &[f32], out: &mut [u8]) {
    encode_blocks(values, out, |v: &[f32; 32], b: &mut [u8; 18]| {
        let extreme = v.iter().fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
        let d = extreme / -8.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        b[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        let code = |x: f32| ((x * inverse + 8.5) as u8).min(15);
        for (i, q) in b[2..].iter_mut().enumerate() {
            *q = code(v[i]) | code(v[i + 16]) << 4;
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::{DType, dequantize, quantize};

    fn round_trip(dtype: DType, values: &[f32; 32]) -> Vec<f32> {
        let mut block = vec![0; dtype.block_bytes()];
        let mut out = vec![0.0; 32];
        quantize(dtype, values, &mut block).unwrap();
        dequantize(dtype, &block, &mut out).unwrap();
        out
    }

    #[test]
    fn zeros_stay_zeros() {
        for dtype in [DType::Q8_0, DType::Q4_0] {
            assert_eq!(round_trip(dtype, &[0.0; 32]), [0.0; 32]);
        }
    }

    #[test]
    fn values_on_the_grid_are_kept_and_ties_go_away_from_zero() {
        let mut v: [f32; 32] = std::array::from_fn(|i| i as f32 - 16.0);
        v[31] = 127.0;
        assert_eq!(round_trip(DType::Q8_0, &v), v);
        v[0] = 2.5;
        v[1] = -2.5;
        let out = round_trip(DType::Q8_0, &v);
        assert_eq!((out[0], out[1]), (3.0, -3.0));

        let mut v: [f32; 32] = std::array::from_fn(|i| (i % 16) as f32 - 8.0);
        assert_eq!(round_trip(DType::Q4_0, &v), v);
        // the positive side has one code less than the negative
        v[15] = 7.9;
        assert_eq!(round_trip(DType::Q4_0, &v)[15], 7.0);
    }
}
