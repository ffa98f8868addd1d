//! Rows past the page cache: deduplicated, sorted, read in waves of aligned blocks, and kept in a clock cache.

use super::clock::Clock;
use super::extents::{Extent, extents};
use super::io::BlockIo;
use super::{Counters, TableAt};
use std::fs::File;
use std::io;
use std::sync::Arc;
use strata_model::{RowReader, StorageError};

/// Reads under way at a time.
const DEPTH: usize = 256;
/// How often a read that brought nothing new is sent again.
const MAX_TRIES: u32 = 64;

/// A read under way, by its slot.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    extent: usize,
    /// Bytes at the front of the buffer that are good, whole blocks.
    got: usize,
    tries: u32,
}

/// The reader.
pub(crate) struct DirectReader {
    table: TableAt,
    io: Box<dyn BlockIo>,
    block: u64,
    cache: Clock,
    counters: Arc<Counters>,
    /// Rows being read, ascending, none of them in the cache.
    wanted: Vec<u64>,
    /// Their bytes, once they came.
    staged: Vec<u8>,
    extents: Vec<Extent>,
    sent: usize,
    done: usize,
    reads: Vec<Read>,
    free: Vec<usize>,
    /// What went wrong where nobody could be told.
    failed: Option<StorageError>,
    /// The queue cannot be waited for: its buffers are the system's, and nothing is read any more.
    broken: bool,
    /// Places of a call whose rows were not requested.
    late: Vec<usize>,
    late_ids: Vec<u64>,
}

impl DirectReader {
    /// A reader of `table` in `file` (see [`open_direct`](super::open_direct)), with a cache of up to `cache` bytes.
    ///
    /// # Errors
    /// The system does not allow such reads, or there is no memory.
    #[cfg(target_os = "linux")]
    pub fn new(file: File, table: TableAt, block: u64, cache: u64, counters: Arc<Counters>) -> io::Result<DirectReader> {
        let most_blocks = (table.row_bytes() as u64).div_ceil(block) + 1;
        let len = usize::try_from((most_blocks * block).max(crate::plan::QUEUE_BYTES / DEPTH as u64).next_multiple_of(block));
        let io = super::uring::Uring::new(file, DEPTH, len.map_err(|_| io::ErrorKind::InvalidInput)?)?;
        Ok(DirectReader::with(Box::new(io), table, block, cache, counters))
    }

    /// Not on this system.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub fn new(_: File, _: TableAt, _: u64, _: u64, _: Arc<Counters>) -> io::Result<DirectReader> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A reader over any [`BlockIo`] whose buffers hold a row and a block.
    pub fn with(io: Box<dyn BlockIo>, table: TableAt, block: u64, cache: u64, counters: Arc<Counters>) -> DirectReader {
        let depth = io.depth();
        DirectReader {
            cache: Clock::new(cache, table.row_bytes()),
            table,
            io,
            block,
            counters,
            wanted: Vec::new(),
            staged: Vec::new(),
            extents: Vec::new(),
            sent: 0,
            done: 0,
            reads: vec![Read::default(); depth],
            free: (0..depth).rev().collect(),
            failed: None,
            broken: false,
            late: Vec::new(),
            late_ids: Vec::new(),
        }
    }

    /// Reads the block at `offset`, to see whether that is possible.
    ///
    /// # Errors
    /// Why it is not.
    #[cfg(target_os = "linux")]
    pub fn probe(file: File, block: u64, offset: u64) -> Result<(), String> {
        let mut ring = super::uring::Uring::new(file, 1, block as usize).map_err(|e| format!("io_uring: {e}"))?;
        let read = |r: &mut super::uring::Uring| {
            r.start(0, offset / block * block, 0, block as usize)?;
            r.send()?;
            r.wait()?.1
        };
        match read(&mut ring) {
            Ok(0) => Err("a direct read brings nothing".into()),
            Ok(_) => Ok(()),
            Err(e) => Err(format!("a direct read fails: {e}")),
        }
    }

    /// Not on this system.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub fn probe(_: File, _: u64, _: u64) -> Result<(), String> {
        Err("this system has no io_uring".into())
    }

    fn error(&self, e: &Extent, cause: impl ToString) -> StorageError {
        StorageError::Read { file: self.table.file.clone(), offset: e.offset, bytes: e.len as u64, cause: cause.to_string() }
    }

    /// Starts to read `wanted`, which is sorted and without what the cache holds.
    fn begin(&mut self) {
        let (table, most) = (&self.table, self.io.buffer_len());
        extents(self.wanted.iter().map(|id| table.at(*id)), table.row_bytes(), self.block, most, &mut self.extents);
        self.staged.resize(self.wanted.len() * self.table.row_bytes(), 0);
        (self.sent, self.done) = (0, 0);
        if self.broken && !self.extents.is_empty() {
            self.failed = Some(self.error(&self.extents[0], "an earlier wait for reads failed"));
        } else if let Err(e) = self.fill() {
            self.failed = Some(e);
        }
    }

    /// Starts reads while there are free buffers.
    fn fill(&mut self) -> Result<(), StorageError> {
        let before = self.sent;
        while self.sent < self.extents.len() {
            let Some(slot) = self.free.pop() else { break };
            let e = self.extents[self.sent];
            if let Err(x) = self.io.start(slot, e.offset, 0, e.len) {
                self.free.push(slot);
                return Err(self.error(&e, x));
            }
            self.reads[slot] = Read { extent: self.sent, ..Read::default() };
            self.sent += 1;
            Counters::add(&self.counters.reads, 1);
        }
        if self.sent > before { self.send(self.sent - 1) } else { Ok(()) }
    }

    fn send(&mut self, extent: usize) -> Result<(), StorageError> {
        self.io.send().map_err(|x| self.error(&self.extents[extent], x))
    }

    /// Waits for everything under way; with an error, until nothing is and every buffer is free.
    fn finish(&mut self) -> Result<(), StorageError> {
        let mut failed = self.failed.take();
        while self.free.len() < self.reads.len() || (failed.is_none() && self.done < self.extents.len()) {
            let step = self.step(failed.is_some());
            failed = failed.or(step.err());
            // a queue that cannot be waited for does not get better by waiting
            if self.free.len() == self.reads.len() && failed.is_some() {
                break;
            }
        }
        match failed {
            None => Ok(()),
            Some(e) => {
                self.wanted.clear();
                self.extents.clear();
                Err(e)
            }
        }
    }

    /// Takes one read that ended. `drain`: its rows are of no interest any more.
    fn step(&mut self, drain: bool) -> Result<(), StorageError> {
        let (slot, came) = match self.io.wait() {
            Ok(x) => x,
            Err(x) => {
                self.broken = true;
                self.free = (0..self.reads.len()).collect();
                let e = self.extents.get(self.done.min(self.extents.len().saturating_sub(1))).copied();
                let e = e.unwrap_or(Extent { offset: self.table.offset, len: 0, need: 0, first: 0, count: 0 });
                return Err(self.error(&e, x));
            }
        };
        let mut read = self.reads[slot];
        let e = self.extents[read.extent];
        let result = match came {
            _ if drain => Ok(true),
            Ok(0) => Err("the file ends before the row does".to_owned()),
            Ok(n) => {
                Counters::add(&self.counters.read_bytes, n);
                let held = read.got + n;
                if held >= e.need {
                    Ok(true)
                } else {
                    // go on from the last whole block
                    let whole = held / self.block as usize * self.block as usize;
                    read.tries = if whole > read.got { 0 } else { read.tries + 1 };
                    read.got = whole;
                    Ok(false)
                }
            }
            Err(x) if matches!(x.raw_os_error(), Some(EINTR | EAGAIN)) => {
                read.tries += 1;
                Ok(false)
            }
            Err(x) => Err(x.to_string()),
        };
        match result {
            Ok(true) => {
                if !drain {
                    self.stage(slot, &e);
                }
                self.free.push(slot);
                self.done += 1;
                if drain { Ok(()) } else { self.fill() }
            }
            Ok(false) if read.tries <= MAX_TRIES => {
                self.reads[slot] = read;
                Counters::add(&self.counters.again, 1);
                let again = self.io.start(slot, e.offset + read.got as u64, read.got, e.len - read.got);
                if let Err(x) = again.and_then(|()| self.io.send()) {
                    self.free.push(slot);
                    return Err(self.error(&e, x));
                }
                Ok(())
            }
            Ok(false) => {
                self.free.push(slot);
                Err(self.error(&e, format!("interrupted or cut short {MAX_TRIES} times")))
            }
            Err(cause) => {
                self.free.push(slot);
                Err(self.error(&e, cause))
            }
        }
    }

    /// Copies the rows of a read out of its buffer.
    fn stage(&mut self, slot: usize, e: &Extent) {
        let len = self.table.row_bytes();
        let buffer = self.io.buffer(slot);
        for i in e.first..e.first + e.count {
            let at = (self.table.at(self.wanted[i]) - e.offset) as usize;
            self.staged[i * len..][..len].copy_from_slice(&buffer[at..at + len]);
        }
    }

    /// Waits for the rows under way and checks their scales.
    fn finish_checked(&mut self) -> Result<(), StorageError> {
        self.finish()?;
        let len = self.table.row_bytes();
        let bad = self.wanted.iter().zip(self.staged.chunks_exact(len)).find_map(|(id, row)| self.table.check(*id, row).err());
        match bad {
            None => Ok(()),
            Some(e) => {
                self.wanted.clear();
                Err(e)
            }
        }
    }

    /// Keeps the rows that were read.
    fn keep(&mut self) {
        let len = self.table.row_bytes();
        for (id, row) in self.wanted.iter().zip(self.staged.chunks_exact(len)) {
            self.cache.insert(*id, row);
        }
        self.wanted.clear();
        self.extents.clear();
    }

    /// The rows of `ids` that must be read, sorted, into `wanted`.
    fn want(&mut self, ids: &[u64]) {
        let (table, cache) = (&self.table, &self.cache);
        self.wanted.clear();
        self.wanted.extend(ids.iter().filter(|id| **id < table.rows && !cache.holds(**id)));
        self.wanted.sort_unstable();
        self.wanted.dedup();
    }
}

#[cfg(unix)]
use libc::{EAGAIN, EINTR};
#[cfg(not(unix))]
const EINTR: i32 = 4;
#[cfg(not(unix))]
const EAGAIN: i32 = 11;

impl RowReader for DirectReader {
    fn request(&mut self, rows: &[u64]) {
        // an earlier request that nobody collected
        match self.finish_checked() {
            Ok(()) => self.keep(),
            Err(e) => {
                self.failed = Some(e);
                return;
            }
        }
        self.want(rows);
        self.begin();
    }

    fn collect(&mut self, rows: &[u64], out: &mut [f32]) -> Result<(), StorageError> {
        self.finish_checked()?;
        Counters::add(&self.counters.rows, rows.len());
        let (len, cols) = (self.table.row_bytes(), self.table.cols);
        self.late.clear();
        let (mut cached, mut fresh) = (0, 0);
        for (i, (id, out)) in rows.iter().zip(out.chunks_exact_mut(cols)).enumerate() {
            self.table.check_id(*id)?;
            if let Ok(at) = self.wanted.binary_search(id) {
                fresh += 1;
                self.table.decode(&self.staged[at * len..][..len], out);
            } else if let Some(row) = self.cache.get(*id) {
                cached += 1;
                self.table.decode(row, out);
            } else {
                self.late.push(i);
            }
        }
        Counters::add(&self.counters.cached, cached);
        Counters::add(&self.counters.repeated, fresh - self.wanted.len().min(fresh));
        self.keep();
        if self.late.is_empty() {
            return Ok(());
        }
        // not asked for ahead, or pushed out of the cache since
        Counters::add(&self.counters.late, self.late.len());
        self.late_ids.clear();
        self.late_ids.extend(self.late.iter().map(|i| rows[*i]));
        let ids = std::mem::take(&mut self.late_ids);
        // whatever the rows kept just now pushed out or brought in: read all of them
        self.wanted.clear();
        self.wanted.extend_from_slice(&ids);
        self.late_ids = ids;
        self.wanted.sort_unstable();
        self.wanted.dedup();
        self.begin();
        self.finish_checked()?;
        for i in &self.late {
            let at = self.wanted.binary_search(&rows[*i]).expect("every late row was read");
            self.table.decode(&self.staged[at * len..][..len], &mut out[i * cols..][..cols]);
        }
        self.keep();
        Ok(())
    }
}
