//! IQ4_NL and IQ4_XS: 4-bit codes into one table of 16 values.

use crate::format::{decode_blocks, half_at};

/// The values that the codes of the IQ4 formats stand for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 32 values from 16 bytes: low nibbles are values 0..16, high nibbles 16..32.
#[inline(always)]
fn decode_32(d: f32, codes: &[u8; 16], out: &mut [f32; 32]) {
    for (i, q) in codes.iter().enumerate() {
        out[i] = d * f32::from(IQ4_VALUES[usize::from(q & 15)]);
        out[i + 16] = d * f32::from(IQ4_VALUES[usize::from(q >> 4)]);
    }
}

/// Block: d (half), 16 bytes of codes for 32 values. value = d * table\[code\].
pub(crate) fn decode_iq4_nl(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 18], v| {
        for codes in b[2..].as_chunks().0 {
            decode_32(half_at(b, 0), codes, v);
        }
    });
}

/// Block: d (half), 8 x 2 upper bits of the sub-scales, 8 x 4 lower bits, then 16 bytes of codes for each of the 8
/// sub-blocks of 32. value = d * (scale - 32) * table\[code\].
pub(crate) fn decode_iq4_xs(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 136], v: &mut [f32; 256]| {
        let d = half_at(b, 0);
        let upper = u16::from_le_bytes([b[2], b[3]]);
        let sub_blocks = b[8..].as_chunks().0.iter().zip(v.as_chunks_mut().0);
        for (i, (codes, v)) in sub_blocks.enumerate() {
            let low = (b[4 + i / 2] >> (i % 2 * 4)) & 15;
            let scale = low | (((upper >> (2 * i)) & 3) as u8) << 4;
            decode_32(d * f32::from(scale as i8 - 32), codes, v);
        }
    });
}
