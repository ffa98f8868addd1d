//! Rows from the mapped file, asked for ahead: where reads past the page cache are not possible.

use super::{Counters, TableAt};
use crate::pages::{Stretch, random, will_need};
use bytes::Bytes;
use std::sync::Arc;
use strata_model::{RowReader, StorageError};

/// Reads rows from mapped bytes.
pub(crate) struct MappedReader {
    table: TableAt,
    bytes: Bytes,
    counters: Arc<Counters>,
}

impl MappedReader {
    /// A reader of a table whose bytes are these.
    pub fn new(table: TableAt, bytes: Bytes, counters: Arc<Counters>) -> MappedReader {
        random(Stretch::of(&bytes));
        MappedReader { table, bytes, counters }
    }

    fn row(&self, id: u64) -> Result<&[u8], StorageError> {
        self.table.check_id(id)?;
        let len = self.table.row_bytes();
        Ok(&self.bytes[id as usize * len..][..len])
    }
}

impl RowReader for MappedReader {
    fn request(&mut self, rows: &[u64]) {
        for row in rows.iter().filter_map(|id| self.row(*id).ok()) {
            will_need(Stretch::of(row));
        }
    }

    fn collect(&mut self, rows: &[u64], out: &mut [f32]) -> Result<(), StorageError> {
        Counters::add(&self.counters.rows, rows.len());
        for (id, out) in rows.iter().zip(out.chunks_exact_mut(self.table.cols)) {
            let row = self.row(*id)?;
            self.table.check(*id, row)?;
            self.table.decode(row, out);
        }
        Ok(())
    }
}
