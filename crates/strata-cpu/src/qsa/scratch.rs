//! Working memory of the attention layer, allocated once.

use super::error::QsaError;
use super::group::{ChunkBuf, GroupQuery};
use super::select::{Select, TILE};
use super::shape::QsaShape;
use std::sync::{Mutex, MutexGuard};
use strata_ops::qsa::attend::Merge;
use strata_ops::qsa::{BLOCK, CHUNK, HEAD_DIM};

/// Chunks whose results are stored at a time when the chunks of one row are spread over threads.
const WINDOW: usize = 64;

/// Working memory of one thread.
pub(crate) struct Worker {
    pub select: Select,
    pub heads: Heads,
}

/// Working memory for the heads of one KV head.
pub(crate) struct Heads {
    pub query: GroupQuery,
    pub chunk: ChunkBuf,
    pub states: Vec<Merge>,
}

/// A thread's memory; its lock is free, for no two tasks run at once with one worker number.
pub(crate) fn lock(worker: &Mutex<Worker>) -> MutexGuard<'_, Worker> {
    worker.lock().unwrap_or_else(|e| e.into_inner())
}

/// Results of the chunks of one row, for all heads, while threads share the row.
pub(crate) struct Shared {
    pub queries: Vec<GroupQuery>,
    /// Chunks stored at a time.
    pub window: usize,
    /// `[head][window]`: m and l.
    pub ml: Vec<[f32; 2]>,
    /// `[head][window][256]`
    pub acc: Vec<f32>,
    pub states: Vec<Merge>,
}

/// Working memory for calls of one shape, up to a row count, a cache capacity and a thread count.
pub struct QsaScratch {
    pub(super) rows: usize,
    pub(super) capacity: usize,
    pub(super) shape: QsaShape,
    pub(crate) workers: Vec<Mutex<Worker>>,
    /// Only with several threads.
    pub(crate) shared: Option<(Select, Shared)>,
}

impl QsaScratch {
    /// Memory for caches of up to `capacity` cells and pools of up to `threads` threads. `rows` is the largest number
    /// of query rows of a call.
    ///
    /// # Errors
    /// [`QsaError::Unsupported`] if `capacity` cells cannot be addressed.
    pub fn new(shape: &QsaShape, rows: usize, capacity: usize, threads: usize) -> Result<QsaScratch, QsaError> {
        if capacity > i32::MAX as usize - BLOCK {
            return Err(QsaError::Unsupported { field: "scratch capacity", found: capacity, supported: "below 2^31 - 4 cells" });
        }
        let (heads, group) = (shape.heads(), shape.group());
        let worker = || Worker {
            select: Select::new(shape, rows.clamp(1, TILE), capacity),
            heads: Heads { query: GroupQuery::new(group), chunk: ChunkBuf::new(group), states: vec![Merge::default(); group] },
        };
        let window = WINDOW.min(capacity.div_ceil(CHUNK)).max(1);
        let shared = || Shared {
            queries: (0..shape.kv_heads()).map(|_| GroupQuery::new(group)).collect(),
            window,
            ml: vec![[0.0; 2]; heads * window],
            acc: vec![0.0; heads * window * HEAD_DIM],
            states: vec![Merge::default(); heads],
        };
        Ok(QsaScratch {
            rows,
            capacity,
            shape: *shape,
            workers: (0..threads.max(1)).map(|_| Mutex::new(worker())).collect(),
            shared: (threads > 1).then(|| (Select::new(shape, 1, capacity), shared())),
        })
    }

    /// Bytes of [`QsaScratch::new`].
    pub fn bytes(shape: &QsaShape, rows: usize, capacity: usize, threads: usize) -> u128 {
        let (heads, group) = (shape.heads(), shape.group());
        let own = GroupQuery::bytes(group) + ChunkBuf::bytes(group) + group * size_of::<Merge>();
        let workers = threads.max(1) as u128 * (Select::bytes(shape, rows.clamp(1, TILE), capacity) + own as u128);
        if threads < 2 {
            return workers;
        }
        let window = WINDOW.min(capacity.div_ceil(CHUNK)).max(1);
        let shared = shape.kv_heads() * GroupQuery::bytes(group) + heads * (window * (8 + 4 * HEAD_DIM) + size_of::<Merge>());
        workers + Select::bytes(shape, 1, capacity) + shared as u128
    }
}
