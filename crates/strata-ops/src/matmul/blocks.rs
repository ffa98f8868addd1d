//! Integer parts of GGUF weight blocks: codes, sub-scales and minima, as products use them.

use half::f16;
use strata_quant::{IQ2_XS_GRID, IQ2_XS_SIGNS, IQ3_S_GRID};

/// Values of the 4-bit codes of IQ4_NL and IQ4_XS.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The `f16` at byte `at` of a block.
#[inline(always)]
pub fn half_at(block: &[u8], at: usize) -> f32 {
    // the const conversion does not look for CPU features on every call
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32_const()
}

/// Sub-block scales and minima of Q4_K and Q5_K, 6 bits each, from their 12 bytes.
#[inline(always)]
pub fn k_scales(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = packed[j] & 63;
        mins[j] = packed[j + 4] & 63;
        scales[j + 4] = packed[j + 8] & 15 | packed[j] >> 6 << 4;
        mins[j + 4] = packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// Sub-block scales of IQ4_XS, in -32..=31.
#[inline(always)]
pub fn iq4_xs_scales(block: &[u8; 136]) -> [i8; 8] {
    let high = u16::from_le_bytes([block[2], block[3]]);
    std::array::from_fn(|j| {
        let low = block[4 + j / 2] >> (4 * (j % 2)) & 15;
        let high = (high >> (2 * j) & 3) as u8;
        (low | high << 4) as i8 - 32
    })
}

/// Codes of Q4_0, in -8..=7, or the values of IQ4_NL, by the map from nibbles.
#[inline(always)]
pub fn nibbles32(qs: &[u8], value: impl Fn(u8) -> i8) -> [i8; 32] {
    std::array::from_fn(|i| value(if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }))
}

/// Codes of Q4_K, in 0..=15.
#[inline(always)]
pub fn q4_k_codes(block: &[u8; 144]) -> [i8; 256] {
    std::array::from_fn(|i| {
        let byte = block[16 + i / 64 * 32 + i % 32];
        (byte >> (i % 64 / 32 * 4) & 15) as i8
    })
}

/// Codes of Q5_K, in 0..=31.
#[inline(always)]
pub fn q5_k_codes(block: &[u8; 176]) -> [i8; 256] {
    std::array::from_fn(|i| {
        let low = block[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
        let high = block[16 + i % 32] >> (i / 32) & 1;
        (low | high << 4) as i8
    })
}

/// Codes of Q6_K, in -32..=31.
#[inline(always)]
pub fn q6_k_codes(block: &[u8; 210]) -> [i8; 256] {
    std::array::from_fn(|i| {
        let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
        let low = block[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
        let high = block[128 + half * 32 + l] >> (quarter * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// Values of IQ4_XS before scaling.
#[inline(always)]
pub fn iq4_xs_codes(block: &[u8; 136]) -> [i8; 256] {
    std::array::from_fn(|i| {
        let byte = block[8 + i / 32 * 16 + i % 16];
        IQ4_VALUES[(byte >> (i % 32 / 16 * 4) & 15) as usize]
    })
}

/// Factors of the 32-value sub-blocks of IQ3_S: odd, in 1..=31.
#[inline(always)]
pub fn iq3_s_scales(block: &[u8; 110]) -> [i8; 8] {
    std::array::from_fn(|j| (block[106 + j / 2] >> (4 * (j % 2)) & 15) as i8 * 2 + 1)
}

/// Values of IQ3_S before scaling: odd, in -15..=15.
#[inline(always)]
pub fn iq3_s_codes(block: &[u8; 110]) -> [i8; 256] {
    let mut codes = [0; 256];
    for (g, group) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let high = block[66 + g / 8] >> (g % 8) & 1;
        let entry = IQ3_S_GRID[usize::from(u16::from_le_bytes([block[2 + g], high]))];
        *group = signed(entry, block[74 + g / 2] >> (4 * (g % 2)));
    }
    codes
}

/// Factors of the 16-value sub-blocks of IQ2_XS: odd, in 1..=31. A block's values are code * factor * d / 8.
#[inline(always)]
pub fn iq2_xs_scales(block: &[u8; 74]) -> [i8; 16] {
    std::array::from_fn(|j| (block[66 + j / 2] >> (4 * (j % 2)) & 15) as i8 * 2 + 1)
}

/// Values of IQ2_XS before scaling: 8, 25 or 43, of either sign.
#[inline(always)]
pub fn iq2_xs_codes(block: &[u8; 74]) -> [i8; 256] {
    let mut codes = [0; 256];
    for (g, group) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = usize::from(u16::from_le_bytes([block[2 + 2 * g], block[3 + 2 * g]]));
        *group = signed(IQ2_XS_GRID[word & 511], IQ2_XS_SIGNS[word >> 9]);
    }
    codes
}

/// `codes`, negative where `signs` has a bit set.
#[inline(always)]
fn signed<const N: usize>(codes: [i8; N], signs: u8) -> [i8; N] {
    std::array::from_fn(|i| if signs >> i & 1 == 1 { -codes[i] } else { codes[i] })
}
