//! Query-sparse attention: KV row formats, block scorer, block top-k, attention over the selected cells
//! (NUMERICS.md sections 3 and 4; the scorer and the top-k are contracts of their own).
//!
//! Everything here is the definition: plain scalar loops in the defined order, nothing allocated.

pub mod attend;
pub mod digits;
pub mod hadamard;
pub mod index_key;
pub mod kv;
pub mod score;
pub mod topk;

/// Values of one attention head (query, key or value row).
pub const HEAD_DIM: usize = 256;
/// Values of one indexer head.
pub const INDEX_DIM: usize = 128;
/// Cells of one block: the unit of scoring and selection, and of the physical row order.
pub const BLOCK: usize = 4;
/// Selected cells of one attention chunk.
pub const CHUNK: usize = 64;
/// Values that share one scale in an int8 row.
pub const INT8_GROUP: usize = 64;
/// Scales of an int8 row.
pub const GROUPS: usize = HEAD_DIM / INT8_GROUP;
/// Bytes of one q4_0 row: 8 blocks of a half scale and 16 bytes.
pub const Q4_ROW: usize = HEAD_DIM / 32 * 18;

/// Physical row of a cell's KV head under the identity page table (pages of [`BLOCK`] cells).
#[inline(always)]
pub fn row_of(cell: usize, kv_head: usize, kv_heads: usize) -> usize {
    (cell / BLOCK * kv_heads + kv_head) * BLOCK + cell % BLOCK
}

/// Cells that the query of a sequence of `n_kv` cells attends to: all of them while there are at most
/// `budget_blocks` complete blocks, else that many blocks and the incomplete tail.
#[inline(always)]
pub fn selection_width(n_kv: usize, budget_blocks: usize) -> usize {
    if n_kv / BLOCK > budget_blocks { budget_blocks * BLOCK + n_kv % BLOCK } else { n_kv }
}
