//! Checkpoints in a directory, within a budget of bytes: what is there after a restart, and what memory has no room for.
//!
//! A thread writes, so that no step waits; while it has enough to do, more is dropped. A file gets its name when it is whole and on
//! the device. What is found under a name of ours and cannot be used is removed: parts of files, files that have changed,
//! those of another model, configuration or version. A directory serves one configuration at a time.

use super::format::{Configuration, FileError, file_bytes, read, read_tokens, write};
use crate::checkpoint::Checkpoint;
use bytemuck::cast_slice;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::SystemTime;
use twox_hash::XxHash3_128;

/// Where checkpoints are kept on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    pub dir: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Counts since the start, and what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    pub files: usize,
    pub bytes: u64,
    pub written: u64,
    /// Checkpoints that were not written because the thread was busy, or could not be.
    pub dropped: u64,
    pub loaded: u64,
    /// Files that were removed because they could not be used.
    pub refused: u64,
}

struct Entry {
    tokens: Vec<u32>,
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

struct Index {
    entries: Vec<Entry>,
    stats: DiskStats,
}

struct Shared {
    dir: PathBuf,
    budget: u64,
    config: Configuration,
    index: Mutex<Index>,
}

/// The directory.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    queue: Option<SyncSender<Arc<Checkpoint>>>,
    thread: Option<JoinHandle<()>>,
}

/// Checkpoints that wait to be written.
const WAITING: usize = 2;

impl Disk {
    /// Opens a directory, or makes it, and looks through it.
    ///
    /// # Errors
    /// The directory cannot be made or read, or the thread not be started.
    pub fn open(dir: &Path, budget: u64, config: Configuration) -> io::Result<Disk> {
        fs::create_dir_all(dir)?;
        let index = Index { entries: Vec::new(), stats: DiskStats::default() };
        let shared = Arc::new(Shared { dir: dir.to_path_buf(), budget, config, index: Mutex::new(index) });
        for file in fs::read_dir(dir)? {
            shared.find(&file?);
        }
        shared.make_room(0);
        let (queue, waiting) = sync_channel(WAITING);
        let work = Arc::clone(&shared);
        let thread = Builder::new().name("strata-cache".into()).spawn(move || work.write_all(&waiting))?;
        Ok(Disk { shared, queue: Some(queue), thread: Some(thread) })
    }

    pub fn stats(&self) -> DiskStats {
        let index = self.shared.lock();
        let bytes = index.entries.iter().map(|e| e.bytes).sum();
        DiskStats { files: index.entries.len(), bytes, ..index.stats }
    }

    /// The length of what [`Disk::load`] would give.
    pub fn longest(&self, tokens: &[u32]) -> usize {
        self.shared.lock().longest(tokens).map_or(0, |e| e.tokens.len())
    }

    /// The longest checkpoint that `tokens` begin with and that leaves at least one of them to read.
    pub fn load(&self, tokens: &[u32]) -> Option<Checkpoint> {
        let (path, of) = self.shared.lock().longest(tokens).map(|e| (e.path.clone(), e.tokens.clone()))?;
        let found = File::open(&path).map_err(FileError::Io).and_then(|f| {
            let c = load_open(&f, &self.shared.config)?;
            // a file whose time cannot be set is given up sooner
            let _ = f.set_modified(SystemTime::now());
            Ok(c)
        });
        let mut index = self.shared.lock();
        match found {
            Ok(c) if c.tokens == of => {
                index.stats.loaded += 1;
                index.entries.iter_mut().filter(|e| e.path == path).for_each(|e| e.used = SystemTime::now());
                Some(c)
            }
            r => {
                index.entries.retain(|e| e.path != path);
                let gone = matches!(&r, Err(FileError::Io(e)) if e.kind() == io::ErrorKind::NotFound);
                let mended = matches!(&r, Err(FileError::Memory(_)));
                if !gone && !mended {
                    index.stats.refused += 1;
                    let _ = fs::remove_file(&path);
                }
                None
            }
        }
    }

    /// Has a checkpoint written, some time.
    pub fn store(&self, c: Arc<Checkpoint>) {
        if let Some(queue) = &self.queue
            && queue.try_send(c).is_err()
        {
            self.shared.lock().stats.dropped += 1;
        }
    }
}

impl Drop for Disk {
    /// Waits until what was taken is written.
    fn drop(&mut self) {
        self.queue = None;
        // a panic of its own has ended it
        self.thread.take().map(JoinHandle::join);
    }
}

impl Index {
    fn longest(&self, tokens: &[u32]) -> Option<&Entry> {
        let fits = self.entries.iter().filter(|e| e.tokens.len() < tokens.len() && tokens.starts_with(&e.tokens));
        fits.max_by_key(|e| e.tokens.len())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, tokens: &[u32]) -> String {
        let key = XxHash3_128::oneshot(cast_slice(tokens)) as u64;
        format!("strata-{:016x}-{key:016x}.state", self.config.name())
    }

    /// Takes up a file of the directory, if it is of use; removes it if it is ours and is not.
    fn find(&self, file: &fs::DirEntry) {
        let (name, path) = (file.file_name(), file.path());
        let Some(name) = name.to_str().filter(|n| is_ours(n)) else { return };
        let found = || {
            let meta = file.metadata()?;
            let tokens = read_tokens(&mut BufReader::new(File::open(&path)?), &self.config, meta.len())?;
            Ok::<_, FileError>(Entry { tokens, path: path.clone(), bytes: meta.len(), used: meta.modified()? })
        };
        match found() {
            Ok(e) if self.name(&e.tokens) == name => self.lock().entries.push(e),
            _ => {
                self.lock().stats.refused += 1;
                // what cannot be removed is looked at again the next time
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Removes those used least recently until `bytes` more fit.
    fn make_room(&self, bytes: u64) {
        let mut index = self.lock();
        index.entries.sort_by_key(|e| e.used);
        while !index.entries.is_empty() && index.entries.iter().map(|e| e.bytes).sum::<u64>() + bytes > self.budget {
            let _ = fs::remove_file(index.entries.remove(0).path);
        }
    }

    fn write_all(&self, waiting: &Receiver<Arc<Checkpoint>>) {
        for c in waiting {
            let written = self.write_one(&c);
            let mut index = self.lock();
            match written {
                Ok(true) => index.stats.written += 1,
                Ok(false) => {}
                Err(_) => index.stats.dropped += 1,
            }
        }
    }

    /// False: it is there already, or too large.
    fn write_one(&self, c: &Checkpoint) -> io::Result<bool> {
        let path = self.dir.join(self.name(&c.tokens));
        let bytes = file_bytes(c, &self.config);
        if bytes > self.budget || self.lock().entries.iter().any(|e| e.path == path) {
            return Ok(false);
        }
        self.make_room(bytes);
        write_file(c, &self.config, &path)?;
        self.lock().entries.push(Entry { tokens: c.tokens.clone(), path, bytes, used: SystemTime::now() });
        Ok(true)
    }
}

/// True for the names that this module gives: nothing else is ever removed.
fn is_ours(name: &str) -> bool {
    let hex = |s: &str| s.len() == 16 && s.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((config, rest)) = name.strip_prefix("strata-").and_then(|n| n.split_once('-')) else { return false };
    let Some((key, end)) = rest.split_once('.') else { return false };
    hex(config) && hex(key) && (end == "state" || end.strip_suffix(".new").is_some_and(|pid| pid.parse::<u32>().is_ok()))
}

/// Writes a file beside `path`, brings it to the device and gives it its name.
///
/// # Errors
/// The file cannot be written; nothing of it is left, and what was at `path` is still there.
pub(crate) fn write_file(c: &Checkpoint, config: &Configuration, path: &Path) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let whole = (|| {
        let mut file = File::create(&new)?;
        write(c, config, &mut file)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        // the name too
        let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
    })();
    if whole.is_err() {
        let _ = fs::remove_file(&new);
    }
    whole
}

/// Reads a file.
///
/// # Errors
/// It is not a checkpoint of this configuration, or has changed since it was written.
pub(crate) fn read_file(path: &Path, config: &Configuration) -> Result<Checkpoint, FileError> {
    load_open(&File::open(path)?, config)
}

fn load_open(file: &File, config: &Configuration) -> Result<Checkpoint, FileError> {
    let len = file.metadata()?.len();
    read(&mut BufReader::new(file), config, len)
}

#[cfg(test)]
mod tests;
