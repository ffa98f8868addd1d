//! Q4_K, Q5_K, Q6_K: super-blocks of 256 values with integer sub-scales.

use crate::format::{decode_blocks, half_at};

/// Sub-scale and sub-minimum (6 bits each) of 32-value sub-block `i`, from the 12 packed bytes of Q4_K and Q5_K.
/// Sub-blocks 0..4 have the low 6 bits of bytes `i` and `i + 4`; the others have the nibbles of byte `i + 4` and, as
/// bits 4 and 5, the top bits of those bytes.
#[inline(always)]
fn scale_min(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        let (low, s, m) = (packed[i + 4], packed[i - 4], packed[i]);
        ((low & 15) | (s >> 6) << 4, (low >> 4) | (m >> 6) << 4)
    }
}

/// Block: d, dmin (halfs), 12 bytes of sub-scales, 128 bytes of codes: 32 bytes hold two sub-blocks, low nibbles
/// first. value = d * scale * code - dmin * min.
pub(crate) fn decode_q4_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 144], v: &mut [f32; 256]| {
        let (d, dmin) = (half_at(b, 0), half_at(b, 2));
        for (i, v) in v.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_min(&b[4..16], i);
            let (d, min) = (d * f32::from(scale), dmin * f32::from(min));
            let codes = &b[16 + i / 2 * 32..];
            for (v, q) in v.iter_mut().zip(codes) {
                *v = d * f32::from((q >> (i % 2 * 4)) & 15) - min;
            }
        }
    });
}

/// As Q4_K, with 32 bytes before the codes that hold the fifth bits: bit `i` of byte `l` is for value `l` of
/// sub-block `i`.
pub(crate) fn decode_q5_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 176], v: &mut [f32; 256]| {
        let (d, dmin) = (half_at(b, 0), half_at(b, 2));
        for (i, v) in v.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_min(&b[4..16], i);
            let (d, min) = (d * f32::from(scale), dmin * f32::from(min));
            let (high, codes) = (&b[16..48], &b[48 + i / 2 * 32..]);
            for ((v, q), h) in v.iter_mut().zip(codes).zip(high) {
                *v = d * f32::from((q >> (i % 2 * 4)) & 15 | ((h >> i) & 1) << 4) - min;
            }
        }
    });
}

/// Block: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed sub-scales of 16 values each, d (half).
/// Each half of the block has four runs of 32 values: nibbles low, low, high, high of 64 bytes, bit pair = the run's
/// number. value = d * scale * (code - 32).
pub(crate) fn decode_q6_k(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 210], v: &mut [f32; 256]| {
        let d = half_at(b, 208);
        for (i, v) in v.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = d * f32::from(b[192 + i] as i8);
            let (half, run, within) = (i / 8, i % 8 / 2, i % 2 * 16);
            let low = &b[half * 64 + run % 2 * 32 + within..];
            let high = &b[128 + half * 32 + within..];
            for ((v, l), h) in v.iter_mut().zip(low).zip(high) {
                let code = (l >> (run / 2 * 4)) & 15 | ((h >> (run * 2)) & 3) << 4;
                *v = d * f32::from(code as i8 - 32);
            }
        }
    });
}
