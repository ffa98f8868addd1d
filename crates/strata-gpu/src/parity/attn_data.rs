//! Data of the attention suites: pools of random rows under a permuted page table with holes, selections, and the
//! definition's answers.

use crate::attention::KvPool;
use crate::device::Device;
use crate::error::Result;
use std::ops::Range;
use strata_cpu::parity::reference_head_paged;
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::kv::{KvKind, KvRows, RowKind, Rows, encode_f16, encode_int8, encode_q4};
use strata_ops::qsa::{BLOCK, GROUPS, HEAD_DIM, Q4_ROW, row_of};

/// One side of a pool on the host.
pub(crate) enum Side {
    F16(Vec<u16>),
    Int8(Vec<i8>, Vec<u16>),
    Q4(Vec<u8>),
}

impl Side {
    /// Rows of one byte: what a suite overwrites.
    pub fn filled(kind: RowKind, rows: usize, byte: u8) -> Side {
        let half = u16::from_le_bytes([byte; 2]);
        match kind {
            RowKind::Int8 => Side::Int8(vec![byte as i8; rows * HEAD_DIM], vec![half; rows * GROUPS]),
            RowKind::Q4_0 => Side::Q4(vec![byte; rows * Q4_ROW]),
            RowKind::F16 | RowKind::F32 => Side::F16(vec![half; rows * HEAD_DIM]),
        }
    }

    /// fp16 with exponents 11..=15, int8 with scales in [1/64, 1/32), q4_0 with scales in [1/4, 1/2).
    fn random(rng: &mut Rng, kind: RowKind, rows: usize) -> Side {
        let half = |rng: &mut Rng, exponent: u16| (rng.bits() as u16 & 0x3ff) | exponent << 10;
        match kind {
            RowKind::Int8 => {
                let codes = (0..rows * HEAD_DIM).map(|_| (rng.below(255) as i32 - 127) as i8).collect();
                Side::Int8(codes, (0..rows * GROUPS).map(|_| half(rng, 9)).collect())
            }
            RowKind::Q4_0 => {
                let mut bytes: Vec<u8> = (0..rows * Q4_ROW).map(|_| rng.bits() as u8).collect();
                for block in bytes.as_chunks_mut::<18>().0 {
                    block[..2].copy_from_slice(&half(rng, 13).to_le_bytes());
                }
                Side::Q4(bytes)
            }
            RowKind::F16 | RowKind::F32 => Side::F16(
                (0..rows * HEAD_DIM)
                    .map(|_| {
                        let exponent = 11 + rng.below(5) as u16;
                        half(rng, exponent) | (rng.bits() as u16 & 0x8000)
                    })
                    .collect(),
            ),
        }
    }

    /// Encodes one row by the definition.
    pub fn encode(&mut self, row: usize, x: &[f32; HEAD_DIM]) {
        let r = row * HEAD_DIM..(row + 1) * HEAD_DIM;
        match self {
            Side::F16(out) => encode_f16(x, &mut out[r]),
            Side::Int8(codes, scales) => encode_int8(x, &mut codes[r], &mut scales[row * GROUPS..(row + 1) * GROUPS]),
            Side::Q4(out) => encode_q4(x, &mut out[row * Q4_ROW..(row + 1) * Q4_ROW]),
        }
    }

    /// Codes as bytes, and int8 scales.
    pub fn parts(&self) -> (&[u8], &[u16]) {
        match self {
            Side::F16(x) => (bytemuck::cast_slice(x), &[]),
            Side::Int8(codes, scales) => (bytemuck::cast_slice(codes), scales),
            Side::Q4(x) => (x, &[]),
        }
    }

    pub fn rows(&self) -> Rows<'_> {
        match self {
            Side::F16(x) => Rows::F16(x),
            Side::Int8(codes, scales) => Rows::Int8 { codes, scales },
            Side::Q4(x) => Rows::Q4_0(x),
        }
    }

    pub fn upload(&self, pool: &mut KvPool, side: usize) -> Result<()> {
        let (codes, scales) = self.parts();
        pool.codes[side].write(codes)?;
        pool.scales[side].write(scales)
    }
}

/// A pool on the host and the page table of its cells.
pub(crate) struct HostPool {
    pub kind: KvKind,
    pub kv_heads: usize,
    pub k: Side,
    pub v: Side,
    pub table: Vec<i32>,
}

impl HostPool {
    /// Random rows for `cells` cells: pages permuted, about 3% of them and those of the cells `hole` absent.
    pub fn random(rng: &mut Rng, kind: KvKind, kv_heads: usize, cells: usize, hole: Range<usize>) -> HostPool {
        let pages = cells.div_ceil(BLOCK);
        let mut table: Vec<i32> = permutation(rng, pages);
        for (page, entry) in table.iter_mut().enumerate() {
            if rng.below(100) < 3 || hole.contains(&(page * BLOCK)) {
                *entry = -1 - rng.below(3) as i32;
            }
        }
        let rows = pages * BLOCK * kv_heads;
        let (k, v) = (Side::random(rng, kind.keys(), rows), Side::random(rng, kind.values(), rows));
        HostPool { kind, kv_heads, k, v, table }
    }

    pub fn rows(&self) -> KvRows<'_> {
        KvRows { k: self.k.rows(), v: self.v.rows(), kv_heads: self.kv_heads }
    }

    pub fn upload(&self, device: &Device) -> Result<KvPool> {
        let mut pool = KvPool::new(device, self.kind, self.kv_heads, self.table.len())?;
        self.k.upload(&mut pool, 0)?;
        self.v.upload(&mut pool, 1)?;
        Ok(pool)
    }

    /// Physical rows of the live cells among these.
    pub fn live_rows(&self, kv_head: usize, cells: &[i32]) -> Vec<usize> {
        let row = |c: &i32| {
            let (c, page) = (*c as usize, usize::try_from(self.table[*c as usize / BLOCK]).ok()?);
            Some(row_of(page * BLOCK + c % BLOCK, kv_head, self.kv_heads))
        };
        cells.iter().filter_map(row).collect()
    }

    /// The definition's answer for queries of `heads` heads; `ids[i]` are query i's cells. Spread over the CPU's threads.
    pub fn reference(&self, q: &[f32], heads: usize, ids: &[&[i32]]) -> Vec<f32> {
        let (kv, group) = (self.rows(), heads / self.kv_heads);
        let mut out = vec![f32::from_bits(0x7fc0_1111); ids.len() * heads * HEAD_DIM];
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let next = std::sync::Mutex::new(q.as_chunks::<HEAD_DIM>().0.iter().zip(out.as_chunks_mut::<HEAD_DIM>().0).enumerate());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let Some((i, (q, out))) = next.lock().unwrap_or_else(|e| e.into_inner()).next() else { break };
                        reference_head_paged(&kv, &self.table, i % heads / group, q, ids[i / heads], out);
                    }
                });
            }
        });
        out
    }
}

/// The numbers 0..n in a random order.
pub(crate) fn permutation(rng: &mut Rng, n: usize) -> Vec<i32> {
    let mut p: Vec<i32> = (0..n as i32).collect();
    for i in (1..n).rev() {
        p.swap(i, rng.below(i + 1));
    }
    p
}

/// Selected cells by pattern: a run (often over the hole), ascending with gaps, or in any order with repeats.
pub(crate) fn selection(rng: &mut Rng, pattern: usize, width: usize, cells: usize, hole: &Range<usize>) -> Vec<i32> {
    match pattern % 3 {
        0 => {
            let most = cells - width.min(cells);
            let near = (hole.start + rng.below(64)).saturating_sub(width / 2);
            let from = if rng.below(4) == 0 { rng.below(most + 1) } else { near.min(most) };
            (from..from + width.min(cells)).map(|c| c as i32).collect()
        }
        1 => {
            let mut left = width;
            let mut take = |c: &usize| {
                let yes = rng.below(cells - c) < left;
                left -= usize::from(yes);
                yes
            };
            (0..cells).filter(|c| take(c)).map(|c| c as i32).collect()
        }
        _ => (0..width).map(|_| rng.below(cells) as i32).collect(),
    }
}
