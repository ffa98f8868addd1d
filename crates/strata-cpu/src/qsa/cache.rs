//! KV cache of one layer of one sequence.

mod saved;

use super::disjoint::Disjoint;
use super::error::{QsaError, check_len};
use super::shape::QsaShape;
use crate::pool::Pool;
use crate::simd::Simd;
use strata_ops::qsa::index_key::{dead_key, pooled_key};
use strata_ops::qsa::kv::{KvKind, KvRows, RowKind, Rows, encode_f16, encode_int8, encode_q4, rows_for};
use strata_ops::qsa::{BLOCK, GROUPS, HEAD_DIM, INDEX_DIM, Q4_ROW, row_of};
use strata_ops::rope::RopeTable;

/// Raw index keys kept behind the last cell. A cut may go back this far less one open block.
pub const RAW_RING: usize = 128;

/// One side (keys or values) of a cache: plain arrays of physical rows. Only those of its kind are filled.
#[derive(Clone, Debug, Default)]
struct Side {
    f32: Vec<f32>,
    f16: Vec<u16>,
    codes: Vec<i8>,
    scales: Vec<u16>,
    q4: Vec<u8>,
}

impl Side {
    fn new(kind: RowKind, rows: usize) -> Option<Side> {
        let mut side = Side::default();
        match kind {
            RowKind::F32 => side.f32 = zeroed(rows, HEAD_DIM)?,
            RowKind::F16 => side.f16 = zeroed(rows, HEAD_DIM)?,
            RowKind::Int8 => (side.codes, side.scales) = (zeroed(rows, HEAD_DIM)?, zeroed(rows, GROUPS)?),
            RowKind::Q4_0 => side.q4 = zeroed(rows, Q4_ROW)?,
        }
        Some(side)
    }

    fn rows(&self, kind: RowKind) -> Rows<'_> {
        match kind {
            RowKind::F32 => Rows::F32(&self.f32),
            RowKind::F16 => Rows::F16(&self.f16),
            RowKind::Int8 => Rows::Int8 { codes: &self.codes, scales: &self.scales },
            RowKind::Q4_0 => Rows::Q4_0(&self.q4),
        }
    }

    fn writer(&mut self) -> SideWriter<'_> {
        SideWriter {
            f32: Disjoint::new(&mut self.f32),
            f16: Disjoint::new(&mut self.f16),
            codes: Disjoint::new(&mut self.codes),
            scales: Disjoint::new(&mut self.scales),
            q4: Disjoint::new(&mut self.q4),
        }
    }
}

/// A side while several threads write different rows.
struct SideWriter<'a> {
    f32: Disjoint<'a, f32>,
    f16: Disjoint<'a, u16>,
    codes: Disjoint<'a, i8>,
    scales: Disjoint<'a, u16>,
    q4: Disjoint<'a, u8>,
}

impl SideWriter<'_> {
    /// Encodes one row.
    ///
    /// # Safety
    /// No other thread writes this row now.
    unsafe fn write(&self, encoders: &Encoders, kind: RowKind, row: usize, x: &[f32; HEAD_DIM]) {
        let r = row * HEAD_DIM..(row + 1) * HEAD_DIM;
        // SAFETY: the ranges of different rows do not overlap, and the caller alone writes this row. The encoders were
        // picked for this CPU.
        unsafe {
            match kind {
                RowKind::F32 => self.f32.range(r).copy_from_slice(x),
                RowKind::F16 => (encoders.f16)(x, self.f16.range(r)),
                RowKind::Int8 => (encoders.int8)(x, self.codes.range(r), self.scales.range(row * GROUPS..(row + 1) * GROUPS)),
                RowKind::Q4_0 => (encoders.q4)(x, self.q4.range(row * Q4_ROW..(row + 1) * Q4_ROW)),
            }
        }
    }
}

crate::versions! { mod f16_rows = encode_f16; (x: &[f32], out: &mut [u16]) }
crate::versions! { mod int8_rows = encode_int8; (x: &[f32], codes: &mut [i8], scales: &mut [u16]) }
crate::versions! { mod q4_rows = encode_q4; (x: &[f32; HEAD_DIM], out: &mut [u8]) }
crate::versions! { mod pool = pooled_key; (raw: [&[f32]; BLOCK], gain: &[f32], eps: f32, cos: &[f32], sin: &[f32], out: &mut [f32]) }

/// The row encoders of this CPU.
#[derive(Clone, Copy, Debug)]
struct Encoders {
    f16: f16_rows::Kernel,
    int8: int8_rows::Kernel,
    q4: q4_rows::Kernel,
    pooled: pool::Kernel,
}

impl Encoders {
    fn best() -> Encoders {
        let level = Simd::best();
        Encoders { f16: f16_rows::pick(level), int8: int8_rows::pick(level), q4: q4_rows::pick(level), pooled: pool::pick(level) }
    }
}

/// A zeroed array of `rows * width` values, or `None` if the size overflows or memory is short.
fn zeroed<T: Copy + Default>(rows: usize, width: usize) -> Option<Vec<T>> {
    let n = rows.checked_mul(width)?;
    n.checked_mul(size_of::<T>()).filter(|b| *b <= isize::MAX as usize)?;
    let mut v = Vec::new();
    v.try_reserve_exact(n).ok()?;
    v.resize(n, T::default());
    Some(v)
}

/// New cells of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct NewCells<'a> {
    /// Keys `[n, kv_heads, 256]`, normed and rotated.
    pub k: &'a [f32],
    /// Values `[n, kv_heads, 256]`.
    pub v: &'a [f32],
    /// Raw index keys `[n, 128]`: not normed, not rotated.
    pub index_k: &'a [f32],
    /// Cells.
    pub n: usize,
}

/// What turns raw index keys into pooled ones.
#[derive(Clone, Copy, Debug)]
pub struct IndexNorm<'a> {
    /// Gain of the RMS norm, 128 values.
    pub gain: &'a [f32],
    pub eps: f32,
    pub rope: &'a RopeTable,
}

/// KV rows, pooled index keys and the last raw index keys of one layer of one sequence.
#[derive(Clone, Debug)]
pub struct QsaCache {
    kind: KvKind,
    kv_heads: usize,
    capacity: usize,
    len: usize,
    k: Side,
    v: Side,
    /// `[capacity / 4, 128]`; complete blocks only are valid.
    pooled: Vec<f32>,
    dead: [f32; INDEX_DIM],
    /// Raw key of cell c at c % RAW_RING, valid for cells raw_from..len.
    ring: Vec<f32>,
    raw_from: usize,
    encoders: Encoders,
}

impl QsaCache {
    /// An empty cache for `capacity` cells. All memory is taken here.
    ///
    /// # Errors
    /// [`QsaError::TooLarge`] if sizes overflow, ids would not fit in an `i32` or the memory is not there.
    pub fn new(shape: &QsaShape, kind: KvKind, capacity: usize) -> Result<QsaCache, QsaError> {
        let kv_heads = shape.kv_heads();
        let make = || {
            if capacity > i32::MAX as usize - BLOCK {
                return None;
            }
            let rows = rows_for(capacity, kv_heads)?;
            Some(QsaCache {
                kind,
                kv_heads,
                capacity,
                len: 0,
                k: Side::new(kind.keys(), rows)?,
                v: Side::new(kind.values(), rows)?,
                pooled: zeroed(capacity / BLOCK, INDEX_DIM)?,
                dead: [0.0; INDEX_DIM],
                ring: zeroed(RAW_RING, INDEX_DIM)?,
                raw_from: 0,
                encoders: Encoders::best(),
            })
        };
        make().ok_or(QsaError::TooLarge { cells: capacity, kind: kind.name(), kv_heads })
    }

    /// Bytes of [`QsaCache::new`].
    pub fn bytes(kv_heads: usize, kind: KvKind, capacity: usize) -> u128 {
        let rows = capacity.div_ceil(BLOCK) as u128 * (BLOCK * kv_heads) as u128;
        let pooled = (capacity / BLOCK + RAW_RING) as u128 * (INDEX_DIM * 4) as u128;
        rows * (kind.keys().row_bytes() + kind.values().row_bytes()) as u128 + pooled
    }

    /// Cells held.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Cells it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The row format.
    pub fn kind(&self) -> KvKind {
        self.kind
    }

    /// KV heads of a cell.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Pooled index keys of the complete blocks, `[len / 4, 128]`.
    pub fn pooled(&self) -> &[f32] {
        &self.pooled[..self.len / BLOCK * INDEX_DIM]
    }

    /// The key that scores the incomplete tail.
    pub fn dead(&self) -> &[f32; INDEX_DIM] {
        &self.dead
    }

    /// Keys and values.
    pub fn rows(&self) -> KvRows<'_> {
        KvRows { k: self.k.rows(self.kind.keys()), v: self.v.rows(self.kind.values()), kv_heads: self.kv_heads }
    }

    /// Cuts the sequence to its first `len` cells, so that the next append continues there. A cut to an incomplete
    /// block needs that block's raw keys: at most [`RAW_RING`] - 4 cells back from the longest length since.
    ///
    /// # Errors
    /// [`QsaError::Cut`] if `len` is above the present length or the raw keys are gone; the cache is then unchanged.
    pub fn truncate(&mut self, len: usize) -> Result<(), QsaError> {
        let open = len / BLOCK * BLOCK;
        if len > self.len || (open < len && open < self.raw_from) {
            return Err(QsaError::Cut { len: self.len, to: len, raw_from: self.raw_from });
        }
        self.len = len;
        self.raw_from = self.raw_from.min(len);
        Ok(())
    }

    /// Appends `n` cells: the same bits as `n` appends of one.
    ///
    /// # Errors
    /// [`QsaError::Full`], [`QsaError::Position`] or [`QsaError::Length`]; the cache is then unchanged.
    pub fn append(&mut self, pool: &Pool, cells: &NewCells<'_>, norm: &IndexNorm<'_>) -> Result<(), QsaError> {
        let (first, n, kv_heads) = (self.len, cells.n, self.kv_heads);
        if n > self.capacity - first {
            return Err(QsaError::Full { capacity: self.capacity, len: first, more: n });
        }
        check_len("k", cells.k.len(), n * kv_heads * HEAD_DIM)?;
        check_len("v", cells.v.len(), n * kv_heads * HEAD_DIM)?;
        check_len("index_k", cells.index_k.len(), n * INDEX_DIM)?;
        check_len("index key gain", norm.gain.len(), INDEX_DIM)?;
        let end = first + n;
        if end / BLOCK > first / BLOCK && end / BLOCK * BLOCK - BLOCK >= norm.rope.positions() {
            return Err(QsaError::Position { position: end / BLOCK * BLOCK - BLOCK, positions: norm.rope.positions() });
        }
        if n == 0 {
            return Ok(());
        }
        let new_raw = cells.index_k.as_chunks::<INDEX_DIM>().0;
        if first == 0 {
            dead_key(&new_raw[0], norm.gain, norm.eps, &mut self.dead);
        }
        let ring = &self.ring;
        let raw = |cell: usize| match cell.checked_sub(first) {
            Some(i) => &new_raw[i][..],
            None => &ring[cell % RAW_RING * INDEX_DIM..][..INDEX_DIM],
        };
        let (k, v) = (cells.k.as_chunks::<HEAD_DIM>().0, cells.v.as_chunks::<HEAD_DIM>().0);
        let (kinds, k_side, v_side) = ((self.kind.keys(), self.kind.values()), self.k.writer(), self.v.writer());
        let (encoders, pooled) = (self.encoders, Disjoint::new(&mut self.pooled));
        // by blocks: a block's rows and its pooled key belong to one task
        let (from, to) = (first / BLOCK, end.div_ceil(BLOCK));
        pool.ranges(to - from, 8, &|blocks, _| {
            for b in blocks.start + from..blocks.end + from {
                for cell in (b * BLOCK).max(first)..((b + 1) * BLOCK).min(end) {
                    for h in 0..kv_heads {
                        let (row, i) = (row_of(cell, h, kv_heads), (cell - first) * kv_heads + h);
                        // SAFETY: cells of a block are written by the one task that has the block.
                        unsafe {
                            k_side.write(&encoders, kinds.0, row, &k[i]);
                            v_side.write(&encoders, kinds.1, row, &v[i]);
                        }
                    }
                }
                if (b + 1) * BLOCK <= end {
                    let (cos, sin) = norm.rope.at(b * BLOCK);
                    let raw = std::array::from_fn(|j| raw(b * BLOCK + j));
                    // SAFETY: one task has the block; the encoders were picked for this CPU.
                    unsafe { (encoders.pooled)(raw, norm.gain, norm.eps, cos, sin, pooled.range(b * INDEX_DIM..(b + 1) * INDEX_DIM)) };
                }
            }
        });
        for cell in first.max(end.saturating_sub(RAW_RING))..end {
            self.ring[cell % RAW_RING * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&new_raw[cell - first]);
        }
        self.raw_from = self.raw_from.max(end.saturating_sub(RAW_RING));
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
