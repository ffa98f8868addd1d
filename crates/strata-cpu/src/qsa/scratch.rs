//! Working memory of the attention layer, allocated once.

use super::error::QsaError;
use super::shape::QsaShape;
use std::sync::Mutex;
use strata_ops::qsa::BLOCK;

/// Working memory of one thread.
pub(super) struct Worker {
    pub scores: Vec<f32>,
    pub ids: Vec<i32>,
}

/// Working memory for calls of one shape, up to a cache capacity and a thread count.
pub struct QsaScratch {
    pub(super) capacity: usize,
    pub(super) workers: Vec<Mutex<Worker>>,
}

impl QsaScratch {
    /// Memory for caches of up to `capacity` cells and pools of up to `threads` threads. `rows` is the largest number
    /// of query rows of a call.
    ///
    /// # Errors
    /// [`QsaError::TooLarge`] if the sizes overflow or the memory is not there.
    pub fn new(shape: &QsaShape, rows: usize, capacity: usize, threads: usize) -> Result<QsaScratch, QsaError> {
        let _ = (rows, shape);
        let workers = (0..threads.max(1))
            .map(|_| Mutex::new(Worker { scores: vec![0.0; capacity / BLOCK + 1], ids: vec![0; capacity] }))
            .collect();
        Ok(QsaScratch { capacity, workers })
    }
}
