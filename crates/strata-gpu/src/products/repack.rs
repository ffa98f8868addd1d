//! Weights as the kernels read them: the bits of a GGUF matrix in another order, none lost, none added but whole rows of
//! zeros that fill the last group of eight, and what [`group_bytes`] says.
//!
//! GGUF blocks of 18, 34, 74, 110 and 210 bytes cannot be loaded sixteen bytes at a time, and one block a thread leaves
//! neighbouring threads far apart in memory. So a block is split in pieces of 16 down to 1 bytes ([`block`]), and the pieces of
//! eight rows and of all chains of a row lie side by side ([`place`], the twin of `kernels/products/formats/layout.cuh`).
//! Float matrices keep their rows; whole groups of eight vectors are transposed ([`float_row`]).

use strata_ops::matmul::{CHAINS_NARROW, CHAINS_WIDE, FLOAT_LANES, segment};
use strata_quant::DType;

/// The formats that have kernels on devices.
pub const FORMATS: [DType; 25] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_0,
    DType::MXFP4,
    DType::NVFP4,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::IQ3_S,
    DType::IQ3_XXS,
    DType::IQ2_S,
    DType::IQ2_XS,
    DType::IQ2_XXS,
    DType::IQ1_M,
    DType::IQ1_S,
];

/// Rows stored side by side.
pub const GROUP_ROWS: usize = 8;

/// Chains of a row of this format.
pub fn chains(dtype: DType) -> usize {
    if dtype.block_len() == 256 { CHAINS_WIDE } else { CHAINS_NARROW }
}

/// Rows of a repacked matrix: the kernels' groups are whole.
pub fn padded_rows(rows: usize) -> usize {
    rows.next_multiple_of(GROUP_ROWS)
}

/// Bytes of a group of rows. Blocks of an odd size leave eight behind, so that the next group's pieces of 16 bytes are aligned.
fn group_bytes(dtype: DType, blocks: usize) -> usize {
    let bytes = GROUP_ROWS * blocks * dtype.block_bytes();
    if dtype.is_float() { bytes } else { bytes.next_multiple_of(16) }
}

/// Bytes of a repacked matrix.
pub fn packed_bytes(dtype: DType, rows: usize, cols: usize) -> usize {
    padded_rows(rows) / GROUP_ROWS * group_bytes(dtype, cols / dtype.block_len())
}

/// A matrix of `rows` rows of `cols` values, repacked.
///
/// # Panics
/// If `bytes` has another size or the format is none of [`FORMATS`].
pub fn repack(dtype: DType, bytes: &[u8], rows: usize, cols: usize) -> Vec<u8> {
    let (blocks, size) = (cols / dtype.block_len(), dtype.block_bytes());
    assert!(FORMATS.contains(&dtype), "{dtype} has no kernel");
    assert_eq!(bytes.len(), rows * blocks * size, "bytes of the matrix");
    let mut out = vec![0; packed_bytes(dtype, rows, cols)];
    if blocks == 0 {
        return out;
    }
    if dtype.is_float() {
        for (row, to) in bytes.chunks_exact(cols * size).zip(out.chunks_exact_mut(cols * size)) {
            float_row(size, row, to);
        }
        return out;
    }
    let pieces = pieces(dtype);
    let mut packed = [0; 256];
    for (r, row) in bytes.chunks_exact(blocks * size).enumerate() {
        for c in 0..chains(dtype) {
            for (step, s) in segment(c, blocks, chains(dtype)).enumerate() {
                block(dtype, &row[s * size..][..size], &mut packed[..size]);
                let Place { tile, count, slot } = place(dtype, r, blocks, c, step);
                let mut before = 0;
                for &width in pieces {
                    let at = tile + before * count + slot * width;
                    out[at..at + width].copy_from_slice(&packed[before..before + width]);
                    before += width;
                }
            }
        }
    }
    out
}

/// Where a block's pieces lie.
struct Place {
    /// Byte offset of the step.
    tile: usize,
    /// Blocks in the step.
    count: usize,
    /// This block among them.
    slot: usize,
}

/// Block `step` of chain `c` of a row.
fn place(dtype: DType, row: usize, blocks: usize, c: usize, step: usize) -> Place {
    let (chains, size, full) = (chains(dtype), dtype.block_bytes(), blocks / chains(dtype));
    let tile = row / GROUP_ROWS * group_bytes(dtype, blocks) + step * chains * GROUP_ROWS * size;
    let r = row % GROUP_ROWS;
    if step < full {
        return Place { tile, count: chains * GROUP_ROWS, slot: c * GROUP_ROWS + r };
    }
    let longer_before = segment(c, blocks, chains).start - c * full;
    Place { tile, count: blocks % chains * GROUP_ROWS, slot: longer_before * GROUP_ROWS + r }
}

/// Sizes of a packed block's pieces, in order.
fn pieces(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q8_0 => &[16, 16, 2],
        DType::Q4_0 | DType::IQ4_NL => &[16, 2],
        DType::Q4_1 => &[16, 4],
        DType::Q5_0 => &[16, 4, 2],
        DType::Q5_1 => &[16, 4, 4],
        DType::Q2_0 => &[8, 8, 2],
        DType::MXFP4 => &[16, 1],
        DType::NVFP4 => &[16, 16, 4],
        DType::Q2_K => &[8, 8, 8, 8, 8, 8, 8, 8, 16, 4],
        DType::Q3_K => &[8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 4, 2],
        DType::Q4_K => &[16; 9],
        DType::Q5_K => &[16, 16, 16, 16, 16, 16, 16, 16, 16, 4, 4, 4, 4, 4, 4, 4, 4],
        DType::Q6_K => &[16, 16, 16, 16, 16, 16, 16, 16, 8, 8, 8, 8, 8, 8, 8, 8, 16, 2],
        DType::IQ4_XS => &[16, 16, 16, 16, 16, 16, 16, 16, 8],
        DType::IQ3_S => &[8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 4, 2],
        DType::IQ3_XXS => &[8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 2],
        DType::IQ2_S => &[8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2],
        DType::IQ2_XS => &[8, 8, 8, 8, 8, 8, 8, 8, 8, 2],
        DType::IQ2_XXS => &[8, 8, 8, 8, 8, 8, 8, 8, 2],
        DType::IQ1_M => &[4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2, 8],
        DType::IQ1_S => &[4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2],
        DType::F32 | DType::F16 | DType::BF16 => &[],
    }
}

/// The bits of a GGUF block in the order of the pieces: codes of 32 values together, then high bits, scales last.
fn block(dtype: DType, from: &[u8], to: &mut [u8]) {
    match dtype {
        DType::Q4_1 => {
            to[..16].copy_from_slice(&from[4..]);
            to[16..].copy_from_slice(&from[..4]);
        }
        DType::Q5_0 | DType::Q5_1 => {
            let high = from.len() - 20;
            to[..16].copy_from_slice(&from[high + 4..]);
            words_of_bits(|i| from[high + i / 8] >> (i % 8), &mut to[16..20]);
            to[20..].copy_from_slice(&from[..high]);
        }
        DType::Q2_0 => {
            to.fill(0);
            for i in 0..64 {
                to[i / 16 * 4 + i % 8 / 2] |= (from[2 + i / 4] >> (i % 4 * 2) & 3) << (i % 2 * 4 + i / 8 % 2 * 2);
            }
            to[16..].copy_from_slice(&from[..2]);
        }
        DType::MXFP4 => {
            to[..16].copy_from_slice(&from[1..]);
            to[16] = from[0];
        }
        DType::NVFP4 => {
            for (k, to) in to[..32].iter_mut().enumerate() {
                let code = |i: usize| from[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15;
                let i = k / 16 * 32 + k % 16;
                *to = code(i) | code(i + 16) << 4;
            }
            to[32..].copy_from_slice(&from[..4]);
        }
        DType::Q2_K => {
            pairs(&from[16..80], to);
            to[64..80].copy_from_slice(&from[..16]);
            to[80..].copy_from_slice(&from[80..]);
        }
        DType::Q3_K => {
            pairs(&from[32..96], to);
            for part in 0..8 {
                words_of_bits(|i| from[i] >> part, &mut to[64 + 4 * part..][..4]);
            }
            // the sub-scales, lower nibbles and upper pairs, each in order
            for (j, to) in to[96..104].iter_mut().enumerate() {
                let nibble = |j: usize| from[96 + j % 8] >> (j / 8 * 4) & 15;
                *to = nibble(2 * j) | nibble(2 * j + 1) << 4;
            }
            for (k, to) in to[104..108].iter_mut().enumerate() {
                *to = (0..4).map(|i| (from[104 + i] >> (2 * k) & 3) << (2 * i)).sum();
            }
            to[108..].copy_from_slice(&from[108..]);
        }
        DType::Q8_0 | DType::Q4_0 | DType::IQ4_NL => {
            let n = from.len() - 2;
            to[..n].copy_from_slice(&from[2..]);
            to[n..].copy_from_slice(&from[..2]);
        }
        DType::Q4_K => {
            nibbles(|i| from[16 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4), to);
            to[128..].copy_from_slice(&from[..16]);
        }
        DType::Q5_K => {
            nibbles(|i| from[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4), to);
            to[128..144].copy_from_slice(&from[..16]);
            for part in 0..8 {
                words_of_bits(|i| from[16 + i] >> part, &mut to[144 + 4 * part..][..4]);
            }
        }
        DType::Q6_K => {
            nibbles(|i| from[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4), to);
            pairs(&from[128..192], &mut to[128..]);
            to[192..].copy_from_slice(&from[192..]);
        }
        DType::IQ4_XS => {
            to[..128].copy_from_slice(&from[8..]);
            to[128..].copy_from_slice(&from[..8]);
        }
        DType::IQ3_S => {
            to[..64].copy_from_slice(&from[2..66]);
            for part in 0..8 {
                words_of_bits(|i| from[74 + part * 4 + i / 8] >> (i % 8), &mut to[64 + 4 * part..][..4]);
            }
            to[96..104].copy_from_slice(&from[66..74]);
            to[104..108].copy_from_slice(&from[106..]);
            to[108..].copy_from_slice(&from[..2]);
        }
        DType::IQ3_XXS => {
            to[..64].copy_from_slice(&from[2..66]);
            for part in 0..8 {
                sign_word(&from[66 + 4 * part..], &mut to[64 + 4 * part..], |g, i| i % 4 * 8 + 2 * g + i / 4);
            }
            to[96..].copy_from_slice(&from[..2]);
        }
        DType::IQ2_S => {
            for part in 0..8 {
                to[8 * part..][..4].copy_from_slice(&from[2 + 4 * part..][..4]);
                bits(|i| from[34 + 4 * part + i % 4] >> (i / 4), &mut to[8 * part + 4..][..4]);
            }
            to[64..80].copy_from_slice(&from[66..]);
            to[80..].copy_from_slice(&from[..2]);
        }
        DType::IQ2_XXS => {
            for part in 0..8 {
                to[8 * part..][..4].copy_from_slice(&from[2 + 8 * part..][..4]);
                sign_word(&from[6 + 8 * part..], &mut to[8 * part + 4..], |g, i| 4 * i + g);
            }
            to[64..].copy_from_slice(&from[..2]);
        }
        DType::IQ2_XS | DType::IQ1_S => {
            let n = from.len() - 2;
            to[..n].copy_from_slice(&from[2..]);
            to[n..].copy_from_slice(&from[..2]);
        }
        _ => to.copy_from_slice(from),
    }
}

/// Bit i of 32 at bit i.
fn bits(bit: impl Fn(usize) -> u8, to: &mut [u8]) {
    to.fill(0);
    for i in 0..32 {
        to[i / 8] |= (bit(i) & 1) << (i % 8);
    }
}

/// A word of four times seven signs and four bits of scale: sign i of group g at bit `at(g, i)`, bit g of the scale at `at(g, 7)`.
fn sign_word(from: &[u8], to: &mut [u8], at: impl Fn(usize, usize) -> usize) {
    to[..4].fill(0);
    for k in 0..32 {
        let to_bit = if k < 28 { at(k / 7, k % 7) } else { at(k - 28, 7) };
        to[to_bit / 8] |= (from[k / 8] >> (k % 8) & 1) << (to_bit % 8);
    }
}

/// Pairs of bits of 256 codes, which the K formats keep by runs of 32: those of word m of the first and of the second 16 of each
/// 32 at bits 2 m of four bytes each.
fn pairs(from: &[u8], to: &mut [u8]) {
    to[..64].fill(0);
    for i in 0..256 {
        let two = from[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        to[i / 16 * 4 + i % 4] |= two << (i % 16 / 4 * 2);
    }
}

/// Low nibbles of 256 codes: the first 16 of each 32 as low halves of bytes.
fn nibbles(code: impl Fn(usize) -> u8, to: &mut [u8]) {
    for (k, to) in to[..128].iter_mut().enumerate() {
        let i = k / 16 * 32 + k % 16;
        *to = code(i) & 15 | (code(i + 16) & 15) << 4;
    }
}

/// A bit of each of 32 values: that of value 4 m + b at bit m of byte b.
fn words_of_bits(bit: impl Fn(usize) -> u8, to: &mut [u8]) {
    to.fill(0);
    for i in 0..32 {
        to[i % 4] |= (bit(i) & 1) << (i / 4);
    }
}

/// A row of float weights of `size` bytes each: in whole groups of 8 lanes x 16 bytes, what a lane of the lane tree takes lies
/// together; the rest of the row stays in order.
fn float_row(size: usize, from: &[u8], to: &mut [u8]) {
    let (whole, tail) = from.as_chunks::<128>();
    for (from, to) in whole.iter().zip(to.as_chunks_mut::<128>().0) {
        for (k, value) in from.chunks_exact(size).enumerate() {
            let at = k % FLOAT_LANES * 16 + k / FLOAT_LANES * size;
            to[at..at + size].copy_from_slice(value);
        }
    }
    to[from.len() - tail.len()..].copy_from_slice(tail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_quant::testing::{SplitMix64, random_blocks};

    /// A map that keeps xor and takes bits to bits, each to another, is a permutation of bits.
    #[test]
    fn repacking_permutes_bits() {
        for dtype in FORMATS {
            let (rows, cols) = if dtype.is_float() { (2, 150) } else { (9, 7 * dtype.block_len()) };
            let mut bytes = vec![0u8; rows * dtype.row_bytes(cols).unwrap()];
            let mut seen = vec![false; packed_bytes(dtype, rows, cols) * 8];
            let mut rng = SplitMix64::new(1);
            for bit in (0..bytes.len() * 8).filter(|_| rng.next_u64().is_multiple_of(61)).collect::<Vec<_>>() {
                bytes[bit / 8] = 1 << (bit % 8);
                let packed = repack(dtype, &bytes, rows, cols);
                bytes[bit / 8] = 0;
                let set: Vec<usize> = (0..packed.len() * 8).filter(|b| packed[b / 8] >> (b % 8) & 1 == 1).collect();
                assert!(set.len() == 1 && !seen[set[0]], "{dtype}: bit {bit} to {set:?}");
                seen[set[0]] = true;
            }
            let random = |rng: &mut SplitMix64| random_blocks(dtype, bytes.len() / dtype.block_bytes(), rng);
            let (a, b) = (random(&mut rng), random(&mut rng));
            let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<_>>();
            let pack = |bytes: &[u8]| repack(dtype, bytes, rows, cols);
            assert_eq!(pack(&xor(&a, &b)), xor(&pack(&a), &pack(&b)), "{dtype}");
            let ones = |v: &[u8]| v.iter().map(|b| b.count_ones()).sum::<u32>();
            assert_eq!(ones(&pack(&vec![0xff; bytes.len()])) as usize, bytes.len() * 8, "{dtype}: two bits meet");
        }
    }

    #[test]
    fn blocks_are_pieces() {
        for dtype in FORMATS.into_iter().filter(|d| !d.is_float()) {
            assert_eq!(pieces(dtype).iter().sum::<usize>(), dtype.block_bytes(), "{dtype}");
        }
    }
}
