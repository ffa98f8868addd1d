//! What a model would ask of its storage, told by binding it to a device that only counts.

use crate::facts::{LayerExperts, ModelFacts, TableFacts};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strata_gguf::{Gguf, TensorInfo};
use strata_model::{RowReader, StackBytes, Storage, StorageError};

/// A storage that hands out mapped bytes, reads none, and remembers what each tensor is for.
#[derive(Default)]
pub struct Recorder(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    facts: ModelFacts,
    layers: BTreeMap<usize, LayerExperts>,
    /// Values of all matrices.
    values: u64,
    table: Option<(PathBuf, u64)>,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder::default()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sizes of what was bound: dense weights, experts, tables. `f32`: every matrix is taken apart to `f32`.
    pub fn facts(&self, f32: bool) -> ModelFacts {
        let r = self.lock();
        ModelFacts { layers: r.layers.values().copied().collect(), as_f32: f32.then_some(r.values * 4), ..r.facts.clone() }
    }

    /// The file of the n-gram table and where the table starts in it.
    pub fn table(&self) -> Option<(PathBuf, u64)> {
        self.lock().table.clone()
    }
}

fn values(t: &TensorInfo) -> u64 {
    t.cols() * t.rows()
}

impl Storage for Recorder {
    fn sizes_only(&self) -> bool {
        true
    }

    fn dense(&self, gguf: &Gguf, t: &TensorInfo) -> Result<Bytes, StorageError> {
        let mut r = self.lock();
        r.facts.dense += t.byte_len;
        r.values += values(t);
        Ok(gguf.data(t))
    }

    fn stack(&self, gguf: &Gguf, t: &TensorInfo, layer: usize, experts: usize) -> Result<StackBytes, StorageError> {
        let mut r = self.lock();
        r.values += values(t);
        let experts = experts as u64;
        let l = r.layers.entry(layer).or_insert(LayerExperts { layer, experts, expert_bytes: 0, tensors: 0 });
        l.expert_bytes += t.byte_len / experts.max(1);
        l.tensors += 1;
        Ok(StackBytes { bytes: gguf.data(t), checked: 0 })
    }

    fn copied_stack(&self, gguf: &Gguf, t: &TensorInfo) -> Bytes {
        let mut r = self.lock();
        r.facts.copied += t.byte_len;
        r.values += values(t);
        gguf.data(t)
    }

    fn embedding(&self, gguf: &Gguf, t: &TensorInfo) -> Bytes {
        self.lock().facts.embedding += t.byte_len;
        gguf.data(t)
    }

    fn rows(&self, gguf: &Gguf, t: &TensorInfo, per_token: usize) -> Result<Option<Box<dyn RowReader>>, StorageError> {
        let mut r = self.lock();
        r.facts.table = Some(TableFacts { bytes: t.byte_len, row_bytes: t.byte_len / t.rows().max(1), per_token: per_token as u64 });
        r.table = gguf.files().nth(t.shard).map(|f| (f.to_owned(), t.offset));
        // its rows are read one by one, or so few that it makes no difference to the sizes
        Ok(Some(Box::new(Nothing)))
    }
}

/// Stands where a table's reader would.
struct Nothing;

impl RowReader for Nothing {
    fn request(&mut self, _: &[u64]) {}

    fn collect(&mut self, _: &[u64], _: &mut [f32]) -> Result<(), StorageError> {
        let (what, expected) = ("a row of the n-gram table".to_owned(), "a model that is bound to be run".to_owned());
        Err(StorageError::Unavailable { what, expected, found: "one that is bound for its sizes".into() })
    }
}
