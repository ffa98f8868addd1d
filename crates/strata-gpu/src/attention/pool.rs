//! KV pools: physical rows of one layer in device memory, found through a page table.

use super::refuse;
use crate::device::{Arg, Buffer, Device};
use crate::error::Result;
use strata_ops::qsa::kv::{KvKind, RowKind};
use strata_ops::qsa::{BLOCK, GROUPS, HEAD_DIM, Q4_ROW};

/// Keys and values of `pages` pages of four cells.
pub struct KvPool {
    kind: KvKind,
    kv_heads: usize,
    pages: usize,
    /// Codes of keys and of values: bytes of rows without int8 scales.
    pub codes: [Buffer<u8>; 2],
    /// Scales of int8 rows, four a row.
    pub scales: [Buffer<u16>; 2],
}

/// Bytes of a row's codes, int8 scales apart.
fn code_bytes(kind: RowKind) -> usize {
    match kind {
        RowKind::F32 => HEAD_DIM * 4,
        RowKind::F16 => HEAD_DIM * 2,
        RowKind::Int8 => HEAD_DIM,
        RowKind::Q4_0 => Q4_ROW,
    }
}

impl KvPool {
    /// A pool; its contents are undefined.
    ///
    /// # Errors
    /// f32 caches (CPU only), no page or no KV head, more rows than an i32 numbers, or not enough memory.
    pub fn new(device: &Device, kind: KvKind, kv_heads: usize, pages: usize) -> Result<KvPool> {
        if kind == KvKind::F32 {
            return Err(refuse("kv pool", "fp16, int8, q4_0 or k8v4", kind.name()));
        }
        let rows = pages.checked_mul(kv_heads * BLOCK).filter(|r| *r > 0 && *r <= i32::MAX as usize);
        let rows = rows.ok_or_else(|| refuse("kv pool", "1 to 2^31 - 1 rows", format!("{pages} pages of {kv_heads} KV heads")))?;
        let codes = |kind| device.alloc(rows * code_bytes(kind));
        // a pointer must be one, even where a format has no scales
        let scales = |kind| device.alloc(if kind == RowKind::Int8 { rows * GROUPS } else { GROUPS });
        let (keys, values) = (kind.keys(), kind.values());
        Ok(KvPool { kind, kv_heads, pages, codes: [codes(keys)?, codes(values)?], scales: [scales(keys)?, scales(values)?] })
    }

    /// Row formats.
    pub fn kind(&self) -> KvKind {
        self.kind
    }

    /// KV heads of a cell.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Pages it holds.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The four pointers in the order kernels take them.
    pub(super) fn args(&self) -> [Arg; 4] {
        [self.codes[0].arg(), self.scales[0].arg(), self.codes[1].arg(), self.scales[1].arg()]
    }
}

/// Pages of cells: entry `c / 4` is the page of cell c in the pool, below 0 where it is not resident. Query or new cell i
/// reads the table at `i * stride`; 0 is one table for all.
#[derive(Clone, Copy)]
pub struct PageTable<'a> {
    pub pages: &'a Buffer<i32>,
    pub stride: usize,
}

impl PageTable<'_> {
    /// The stride as kernels take it.
    pub(super) fn stride_arg(&self) -> Result<Arg> {
        i32::try_from(self.stride).map(Arg::I32).map_err(|_| refuse("page table", "a stride below 2^31", self.stride))
    }
}
