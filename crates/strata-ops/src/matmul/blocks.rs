//! Integer parts of GGUF weight blocks: codes, sub-scales and minima, as products use them.

use half::f16;

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
