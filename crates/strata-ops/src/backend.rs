//! The op set as a trait: what a device must do for a model to run on it.
//!
//! Shapes are `[rows, ...]`, row after row; `n` is the number of rows in use of a buffer that may hold more. An op
//! never allocates and never fails on data: sizes are checked when weights are bound and buffers made. Every
//! backend gives the bits of the scalar definitions in this crate, whatever the number of rows in a call.
//!
//! Rows of several sequences may lie one after another. Ops that look at a sequence's state take one sequence's `rows`, a
//! range of the rows in the buffers, or the large ones all sequences at once, so that a device has enough to do; all others take
//! the first `n` rows, whosever they are.

// an op names every buffer and size it works on
#![allow(clippy::too_many_arguments)]

use crate::qsa::kv::KvKind;
use crate::rope::RopeTable;
use bytes::Bytes;
use std::ops::Range;
use strata_quant::DType;
use thiserror::Error;

/// Why a buffer or a weight could not be made.
#[derive(Debug, Error)]
pub enum OpError {
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory { what: String, bytes: u128 },
    #[error("{what}: expected {expected}, found {found}")]
    Invalid { what: String, expected: String, found: String },
}

/// Geometry of an attention layer with block selection (QSA).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QsaGeometry {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub index_heads: usize,
    pub index_dim: usize,
    /// Cells a block.
    pub block: usize,
    /// Complete blocks a query may attend to besides the tail.
    pub budget_blocks: usize,
    pub eps: f32,
    /// Attend to every cell instead of the selected ones.
    pub dense: bool,
}

/// One sequence's part of a call: its rows, and what the op knows of the sequence.
pub struct SequenceRows<'a, S> {
    /// Which rows of the buffers; those of two sequences do not overlap.
    pub rows: Range<usize>,
    /// Position of the first of them in the sequence.
    pub first: usize,
    /// Move the state past the rows.
    pub commit: bool,
    pub state: &'a mut S,
}

/// The inputs of [`Backend::gdn`] and [`Backend::gdn_commit`]: one layer's rows, of one or more sequences.
pub struct GdnRows<'a, B: Backend> {
    /// `[n, 2 * key_heads * key_dim + value_heads * value_dim]`: queries, keys (both normalised), values.
    pub qkv: &'a B::Buf,
    /// `[n, value_heads]`.
    pub decay: &'a B::Buf,
    pub beta: &'a B::Buf,
    pub shape: GdnShape,
}

/// Geometry of a gated DeltaNet layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdnShape {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
}

impl GdnShape {
    /// Channels of the convolution: all queries, keys and values.
    pub fn conv_dim(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Width of the layer's output before its last projection.
    pub fn inner(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Floats in one sequence's recurrent state.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }
}

/// Expert choices of the rows of a call, in host memory: ranks follow each other within a row.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    pub ids: Vec<u32>,
    pub weights: Vec<f32>,
    /// Experts a row.
    pub ranks: usize,
}

impl Routes {
    pub fn new(rows: usize, ranks: usize) -> Routes {
        Routes { ids: vec![0; rows * ranks], weights: vec![0.0; rows * ranks], ranks }
    }
}

/// The matrices of a stack of experts, each with `experts * rows` rows.
pub struct ExpertStacks<M> {
    pub gate: M,
    pub up: M,
    pub down: M,
    pub experts: usize,
    /// Width of an expert's hidden layer.
    pub width: usize,
    pub hidden: usize,
}

/// A device that runs the op set.
pub trait Backend: Sized + Send + Sync {
    /// An array of `f32` on the device.
    type Buf: Send;
    /// A weight matrix for products, `[rows, cols]`.
    type Matrix: Send + Sync;
    /// A weight table for row look-ups.
    type Table: Send + Sync;
    /// Activations prepared for products with matrices of one or more formats.
    type Acts: Send;
    /// One sequence's cache of one attention layer.
    type KvCache: Send;
    /// Working memory of attention.
    type AttnScratch: Send;
    /// Working memory of the experts.
    type ExpertScratch: Send;

    // buffers
    /// A zeroed buffer.
    fn buf(&self, len: usize, what: &str) -> Result<Self::Buf, OpError>;
    fn write(&self, buf: &mut Self::Buf, at: usize, data: &[f32]);
    fn read(&self, buf: &Self::Buf, at: usize, out: &mut [f32]);
    fn copy(&self, from: &Self::Buf, from_at: usize, to: &mut Self::Buf, to_at: usize, len: usize);
    /// True if these values are all finite.
    fn all_finite(&self, buf: &Self::Buf, values: Range<usize>) -> bool;

    // weights
    fn matrix(&self, dtype: DType, rows: usize, cols: usize, bytes: Bytes, what: &str) -> Result<Self::Matrix, OpError>;
    fn table(&self, dtype: DType, rows: usize, cols: usize, bytes: Bytes, what: &str) -> Result<Self::Table, OpError>;
    /// Activations of up to `rows` rows of `cols` values for products with `weights`.
    fn acts(&self, rows: usize, cols: usize, weights: &[&Self::Matrix], what: &str) -> Result<Self::Acts, OpError>;

    // products
    /// Prepares the first `n` rows of `x`.
    fn prepare(&self, x: &Self::Buf, n: usize, acts: &mut Self::Acts);
    /// Prepares the first `n` rows of `x`, and in the `n` rows after them what their codes leave out:
    /// [`crate::matmul::ActRows::fill_second_order`]. A product of all `2 n` rows, folded, is a finer one of `n`.
    fn prepare_two_orders(&self, x: &Self::Buf, n: usize, acts: &mut Self::Acts);
    /// Adds the second `len` values to the first `len`, one by one.
    fn fold(&self, x: &mut Self::Buf, len: usize);
    /// `out[i] = W x` for every row of `acts` and every pair of a matrix and its output (`[n, rows]`).
    fn matmul(&self, acts: &Self::Acts, n: usize, products: &mut [(&Self::Matrix, &mut Self::Buf)]);
    /// Rows `ids` of the table, one after another, into `out`.
    fn gather(&self, table: &Self::Table, ids: &[u64], out: &mut Self::Buf);

    // norms and elementwise ops
    /// Copies each row of `x` (`[n, hidden]`) into every stream of `r` (`[n, streams, hidden]`).
    fn spread(&self, x: &Self::Buf, n: usize, streams: usize, hidden: usize, r: &mut Self::Buf);
    /// `out[row][stream] = [e[row], h[row][stream]]`: `e` `[n, hidden]`, `h` `[n, streams, hidden]`, `out`
    /// `[n, streams, 2 * hidden]`.
    fn join_streams(&self, e: &Self::Buf, h: &Self::Buf, n: usize, streams: usize, hidden: usize, out: &mut Self::Buf);
    /// RMS norm of `rows` rows of `width`; row i takes the `i % (gain.len() / width)`-th stretch of the gain.
    fn rms_norm(&self, x: &Self::Buf, rows: usize, width: usize, gain: &Self::Buf, eps: f32, out: &mut Self::Buf);
    /// [`crate::hyper::low_gate`] on the first `len` values.
    fn low_gate(&self, lo: &mut Self::Buf, len: usize, inv_streams: f32);
    /// [`crate::hyper::mix`] of `n` rows.
    fn hyper_mix(&self, up: &Self::Buf, norm: &Self::Buf, n: usize, streams: usize, hidden: usize, y: &mut Self::Buf);
    /// [`crate::hyper::inject_gate`] on the first `len` values.
    fn inject_gate(&self, x: &mut Self::Buf, len: usize, inv_streams: f32);
    /// [`crate::hyper::write`] of `n` rows.
    fn hyper_write(&self, r: &mut Self::Buf, inject: &Self::Buf, o: &Self::Buf, n: usize, streams: usize, hidden: usize);
    /// [`crate::moe::silu_mul`] on the first `len` values.
    fn silu_mul(&self, gate: &Self::Buf, up: &Self::Buf, len: usize, h: &mut Self::Buf);
    /// [`crate::conv::conv_silu_row`] for the rows of each sequence in `x` and `out`, each of `channels`; the states, of the rows
    /// before, are read, not advanced.
    fn conv_silu<'a>(
        &self,
        x: &Self::Buf,
        seqs: impl Iterator<Item = SequenceRows<'a, Self::Buf>>,
        channels: usize,
        w: &Self::Buf,
        dilation: usize,
        out: &mut Self::Buf,
    ) where
        Self::Buf: 'a;
    /// [`crate::conv::advance_state`] past `rows` of `x`.
    fn conv_advance(&self, state: &mut Self::Buf, x: &Self::Buf, channels: usize, rows: Range<usize>);

    // gated DeltaNet
    /// Normalises the query (scaled by `key_dim^-0.5`) and key heads of `n` rows in place, eps on the sum.
    fn gdn_norm(&self, qkv: &mut Self::Buf, n: usize, shape: GdnShape, eps: f32);
    /// [`crate::gdn::gates`] of `n` rows.
    fn gdn_gates(
        &self,
        alpha: &Self::Buf,
        b: &Self::Buf,
        a: &Self::Buf,
        dt: &Self::Buf,
        n: usize,
        decay: &mut Self::Buf,
        beta: &mut Self::Buf,
    );
    /// Outputs of the rows of each sequence from its state, which moves past them only if it is to commit.
    fn gdn<'a>(&self, inputs: GdnRows<'_, Self>, seqs: impl Iterator<Item = SequenceRows<'a, Self::Buf>>, out: &mut Self::Buf)
    where
        Self::Buf: 'a;
    /// Moves the state past `rows`, whose outputs are known.
    fn gdn_commit(&self, inputs: GdnRows<'_, Self>, rows: Range<usize>, state: &mut Self::Buf);
    /// [`crate::gdn::gated_norm`] of every head of `n` rows.
    fn gdn_gated_norm(&self, o: &mut Self::Buf, z: &Self::Buf, gain: &Self::Buf, n: usize, shape: GdnShape, eps: f32);

    // n-gram module
    /// [`crate::ple::gate`] of `n` rows.
    fn ple_gate(&self, key: &Self::Buf, query: &Self::Buf, v: &Self::Buf, n: usize, streams: usize, hidden: usize, u: &mut Self::Buf);
    /// [`crate::ple::add`] on the first `len` values.
    fn ple_add(&self, r: &mut Self::Buf, u: &Self::Buf, c: &Self::Buf, len: usize);

    // attention
    /// Takes rows of `[heads, 2, head_dim]` apart into queries and gates, each `[n, heads, head_dim]`.
    fn split_gate(&self, qg: &Self::Buf, n: usize, heads: usize, head_dim: usize, q: &mut Self::Buf, gate: &mut Self::Buf);
    /// Rotates `heads` heads of `width` in each of `rows`, at positions `first..`.
    fn rope(&self, x: &mut Self::Buf, rows: Range<usize>, heads: usize, width: usize, table: &RopeTable, first: usize);
    /// A cache of `capacity` cells.
    fn kv_cache(&self, geometry: QsaGeometry, kind: KvKind, capacity: usize) -> Result<Self::KvCache, OpError>;
    /// Cells in the cache.
    fn kv_len(&self, cache: &Self::KvCache) -> usize;
    /// Drops the cells from `len` on.
    fn kv_truncate(&self, cache: &mut Self::KvCache, len: usize);
    /// Appends a cell for each of `rows`: normalised and rotated keys and values `[n, kv_heads, head_dim]`, raw index keys
    /// `[n, index_dim]`; blocks that become complete get their pooled key.
    fn kv_append(
        &self,
        cache: &mut Self::KvCache,
        k: &Self::Buf,
        v: &Self::Buf,
        index_k: &Self::Buf,
        rows: Range<usize>,
        index_gain: &Self::Buf,
        eps: f32,
        rope: &RopeTable,
    );
    /// Bytes of a block of the cache's cells in [`Backend::kv_save`].
    fn kv_block_bytes(&self, cache: &Self::KvCache) -> usize;
    /// Copies blocks of cells as they are stored, pooled index keys included, into `out`: `kv_block_bytes` for each. The last may be
    /// incomplete.
    fn kv_save(&self, cache: &Self::KvCache, blocks: Range<usize>, out: &mut [u8]);
    /// Puts saved blocks back from block `first` on. The cells count from [`Backend::kv_resume`] on.
    fn kv_load(&self, cache: &mut Self::KvCache, first: usize, saved: &[u8]);
    /// What index keys of cells after the first `len` need beside the saved blocks, `[block, index_dim]`: the key that scores the tail,
    /// then the raw keys of the incomplete block's cells, then zeros. `len` is the present length, or one less.
    fn kv_open(&self, cache: &Self::KvCache, len: usize, out: &mut [f32]);
    /// Makes the first `len` cells, which are stored, the cache's; `open` is what [`Backend::kv_open`] gave for them.
    fn kv_resume(&self, cache: &mut Self::KvCache, len: usize, open: &[f32]);
    fn attn_scratch(&self, geometry: QsaGeometry, rows: usize, capacity: usize) -> Result<Self::AttnScratch, OpError>;
    /// Attention of each sequence's queries (`q`: `[n, heads, head_dim]`, `iq`: `[n, index_heads, index_dim]`, both normalised
    /// and rotated) over the cells of its cache at or before their own.
    fn attend<'a>(
        &self,
        geometry: QsaGeometry,
        q: &Self::Buf,
        iq: &Self::Buf,
        seqs: impl Iterator<Item = SequenceRows<'a, Self::KvCache>>,
        scratch: &mut Self::AttnScratch,
        out: &mut Self::Buf,
    ) where
        Self::KvCache: 'a;
    /// The complete blocks that the query of `row` at position `pos` attends to, ascending, and the score of every
    /// block; `None` if all cells are taken. For tests and reports: allocates.
    fn selected_blocks(
        &self,
        cache: &Self::KvCache,
        geometry: QsaGeometry,
        iq: &Self::Buf,
        row: usize,
        pos: usize,
    ) -> Option<(Vec<u32>, Vec<f32>)>;
    /// [`crate::moe::gate_output`] on the first `len` values.
    fn gate_output(&self, o: &mut Self::Buf, gate: &Self::Buf, len: usize);

    // experts
    /// [`crate::moe::route`] of `n` rows of `experts` logits.
    fn route(&self, logits: &Self::Buf, n: usize, experts: usize, routes: &mut Routes);
    fn expert_scratch(&self, stacks: &ExpertStacks<Self::Matrix>, rows: usize, ranks: usize) -> Result<Self::ExpertScratch, OpError>;
    /// The chosen experts of `n` rows and their weighted sum with the shared expert's output:
    /// [`crate::moe::combine`] row by row. `shared_gate`: `[n]` logits.
    fn experts(
        &self,
        stacks: &ExpertStacks<Self::Matrix>,
        acts: &Self::Acts,
        routes: &Routes,
        n: usize,
        shared: &Self::Buf,
        shared_gate: &Self::Buf,
        scratch: &mut Self::ExpertScratch,
        out: &mut Self::Buf,
    );
}
