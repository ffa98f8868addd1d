//! Geometry of a query-sparse attention layer.

use super::error::QsaError;
use strata_ops::qsa::{BLOCK, HEAD_DIM, INDEX_DIM};

/// Query heads that one KV head may serve.
pub const MAX_GROUP: usize = 16;
/// Indexer heads at most.
pub const MAX_INDEX_HEADS: usize = 16;

/// Geometry of a layer, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QsaShape {
    heads: usize,
    kv_heads: usize,
    index_heads: usize,
    budget_blocks: usize,
    eps: f32,
}

impl QsaShape {
    /// Checks a model's geometry.
    ///
    /// # Errors
    /// [`QsaError::Unsupported`] if the head sizes are not 256 and 128, the query heads are not 1..=16 to a KV head,
    /// there are no or more than 16 indexer heads, or the budget (in blocks of 4 cells) is 0 or above 2^24.
    pub fn new(
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        index_heads: usize,
        index_dim: usize,
        budget_blocks: usize,
        eps: f32,
    ) -> Result<QsaShape, QsaError> {
        let need = |ok: bool, field, found, supported| if ok { Ok(()) } else { Err(QsaError::Unsupported { field, found, supported }) };
        need(head_dim == HEAD_DIM, "head size", head_dim, "256")?;
        need(index_dim == INDEX_DIM, "indexer head size", index_dim, "128")?;
        need((1..=256).contains(&kv_heads), "KV head count", kv_heads, "1 to 256")?;
        let grouped = heads > 0 && heads.is_multiple_of(kv_heads) && heads / kv_heads <= MAX_GROUP;
        need(grouped, "head count", heads, "1 to 16 query heads for each KV head")?;
        need((1..=MAX_INDEX_HEADS).contains(&index_heads), "indexer head count", index_heads, "1 to 16")?;
        need((1..=1 << 24).contains(&budget_blocks), "budget in blocks", budget_blocks, "1 to 2^24")?;
        Ok(QsaShape { heads, kv_heads, index_heads, budget_blocks, eps })
    }

    /// Query heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// KV heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Query heads of one KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Indexer query heads.
    pub fn index_heads(&self) -> usize {
        self.index_heads
    }

    /// Complete blocks that a query attends to at most.
    pub fn budget_blocks(&self) -> usize {
        self.budget_blocks
    }

    /// Cells of the widest selection: the budget and a tail of 3.
    pub fn max_width(&self) -> usize {
        self.budget_blocks * BLOCK + BLOCK - 1
    }

    /// Epsilon of the index key norm.
    pub fn eps(&self) -> f32 {
        self.eps
    }
}
