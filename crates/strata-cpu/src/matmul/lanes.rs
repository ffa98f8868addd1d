//! Rows of the 32-wide formats interleaved, so that a vector lane is a row.

use strata_quant::DType;
use strata_quant::formats::IQ4_VALUES;

/// 64 bytes on a cache line of their own.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Rows in groups of `lanes`, one vector lane each. A product then needs no sum across a vector: every lane adds up
/// its own row. The codes of a block are taken in steps of 4 bytes, which is what the integer dot instructions take.
/// The last group is filled up with zeros.
pub(super) struct Lanes {
    /// `f16` bits, `[group][block][lane]`.
    scales: Vec<u16>,
    /// `[group][block][step][lane][4 bytes]`.
    codes: Vec<Line>,
    /// Magnitudes of the negative codes, summed over a block, `[group][block][lane]`.
    negatives: Vec<i16>,
    blocks: usize,
    /// Bytes of codes in a block of one row.
    code_bytes: usize,
    lanes: usize,
    groups: usize,
}

impl Lanes {
    /// Interleaves GGUF rows of Q8_0, Q4_0 or IQ4_NL.
    pub fn new<const LANES: usize>(dtype: DType, rows: usize, cols: usize, bytes: &[u8]) -> Lanes {
        match dtype {
            DType::Q8_0 => interleave::<34, 32, LANES>(rows, cols, bytes, |codes| {
                codes.iter().map(|&c| i16::from(c as i8)).map(|v| if v < 0 { -v } else { 0 }).sum()
            }),
            DType::Q4_0 => interleave::<18, 16, LANES>(rows, cols, bytes, |_| 0),
            _ => interleave::<18, 16, LANES>(rows, cols, bytes, |codes| {
                let magnitude = |q: u8| (-i16::from(IQ4_VALUES[q as usize])).max(0);
                codes.iter().map(|&c| magnitude(c & 15) + magnitude(c >> 4)).sum()
            }),
        }
    }

    /// Blocks a row.
    #[inline(always)]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Scales of group `g`, `[block][lane]`.
    #[inline(always)]
    pub fn scales(&self, g: usize) -> &[u16] {
        let len = self.blocks * self.lanes;
        &self.scales[g * len..][..len]
    }

    /// Magnitudes of the negative codes of group `g`, `[block][lane]`. Not for Q4_0, whose stored codes are unsigned.
    #[inline(always)]
    pub fn negatives(&self, g: usize) -> &[i16] {
        let len = self.blocks * self.lanes;
        &self.negatives[g * len..][..len]
    }

    /// Codes of group `g`, `[block][step][lane][4 bytes]`, on a cache line.
    #[inline(always)]
    pub fn codes(&self, g: usize) -> &[u8] {
        let len = self.blocks * self.lanes * self.code_bytes;
        assert!(g < self.groups);
        // SAFETY: `Line` is 64 plain bytes without padding, and the lines hold `groups * len` bytes.
        unsafe { std::slice::from_raw_parts(self.codes.as_ptr().cast::<u8>().add(g * len), len) }
    }
}

fn interleave<const BLOCK: usize, const CODES: usize, const LANES: usize>(
    rows: usize,
    cols: usize,
    bytes: &[u8],
    negatives_of: impl Fn(&[u8; CODES]) -> i16,
) -> Lanes {
    let blocks = cols / 32;
    let groups = rows.div_ceil(LANES);
    // 8 lanes of 16 bytes are the smallest block: always whole lines
    let lines = LANES * CODES / 64;
    let mut scales = Vec::with_capacity(groups * blocks * LANES);
    let mut negatives = Vec::with_capacity(groups * blocks * LANES);
    let mut codes = Vec::with_capacity(groups * blocks * lines);
    let rows_of_blocks = bytes.as_chunks::<BLOCK>().0;
    for g in 0..groups {
        let lane_rows: [&[[u8; BLOCK]]; LANES] = std::array::from_fn(|l| {
            let r = g * LANES + l;
            if r < rows { &rows_of_blocks[r * blocks..][..blocks] } else { &[] }
        });
        for s in 0..blocks {
            let mut block = [[[0u8; 4]; LANES]; 8];
            for (l, row) in lane_rows.iter().enumerate() {
                let Some(from) = row.get(s) else {
                    scales.push(0);
                    negatives.push(0);
                    continue;
                };
                scales.push(u16::from_le_bytes([from[0], from[1]]));
                let from: &[u8; CODES] = from[2..].try_into().expect("a block is a scale and its codes");
                negatives.push(negatives_of(from));
                for (step, code) in from.as_chunks::<4>().0.iter().enumerate() {
                    block[step][l] = *code;
                }
            }
            let block = block.as_flattened().as_flattened();
            codes.extend(block[..LANES * CODES].as_chunks::<64>().0.iter().map(|line| Line(*line)));
        }
    }
    Lanes { scales, codes, negatives, blocks, code_bytes: CODES, lanes: LANES, groups }
}
