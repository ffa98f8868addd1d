//! IQ3_S and IQ2_XS: groups of magnitudes from a codebook of 512 entries, and their signs.
//!
//! Every step of a decode is exact in `f32`, so its order does not matter.

use crate::codebooks::{IQ2_XS_GRID, IQ2_XS_SIGNS, IQ3_S_GRID};
use crate::format::{decode_blocks, half_at};

/// `scale` times each code; bit i of `signs` makes value i negative.
#[inline(always)]
fn scaled(scale: f32, codes: [i8; 8], signs: u8) -> [f32; 8] {
    std::array::from_fn(|i| {
        let value = scale * f32::from(codes[i]);
        if signs >> i & 1 == 1 { -value } else { value }
    })
}

/// Block: d (half), then for its 256 values 64 x 8 lower bits of codebook indices, 64 upper bits, 256 signs, and 8 x 4 bits
/// of sub-scales. An index gives 4 values, a sub-scale is for 32. value = d * (1 + 2 * scale) * code.
pub(crate) fn decode_iq3_s(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 110], v: &mut [f32; 256]| {
        let d = half_at(b, 0);
        for (i, v) in v.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = (b[106 + i / 8] >> (i / 4 % 2 * 4)) & 15;
            let entry = |j: usize| IQ3_S_GRID[usize::from(b[2 + j]) | (usize::from(b[66 + j / 8]) >> (j % 8) & 1) << 8];
            let ([c0, c1, c2, c3], [c4, c5, c6, c7]) = (entry(2 * i), entry(2 * i + 1));
            *v = scaled(d * f32::from(1 + 2 * scale), [c0, c1, c2, c3, c4, c5, c6, c7], b[74 + i]);
        }
    });
}

/// Block: d (half), 32 x 16 bits (9 of a codebook index, 7 of a sign index), 16 x 4 bits of sub-scales. An index gives 8
/// values, a sub-scale is for 16. value = d * (1 / 2 + scale) / 4 * code.
pub(crate) fn decode_iq2_xs(bytes: &[u8], out: &mut [f32]) {
    decode_blocks(bytes, out, |b: &[u8; 74], v: &mut [f32; 256]| {
        let d = half_at(b, 0);
        for (i, v) in v.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = (b[66 + i / 4] >> (i / 2 % 2 * 4)) & 15;
            let word = usize::from(u16::from_le_bytes([b[2 + 2 * i], b[3 + 2 * i]]));
            *v = scaled(d * (0.5 + f32::from(scale)) * 0.25, IQ2_XS_GRID[word & 511], IQ2_XS_SIGNS[word >> 9]);
        }
    });
}
