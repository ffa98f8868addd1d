//! A plan carried out: the storage of a model.

use crate::arena::Arena;
use crate::facts::{Facts, NgramMode};
use crate::lookahead::{ExpertCounts, LookAhead};
use crate::pages::{Stretch, let_go, lock as lock_pages, random, touch, will_need};
use crate::plan::{Dense, Plan, TablePlace};
use crate::rows::{Counters, DirectReader, MappedReader, RowCounts, TableAt, open_direct};
use crate::usage::{Usage, usage};
use bytes::Bytes;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use strata_gguf::{Gguf, TensorInfo};
use strata_model::{ExpertWatch, RowReader, StackBytes, Storage, StorageError};

/// The tiers of one model.
pub struct Tiers {
    facts: Facts,
    plan: Plan,
    arena: Mutex<Arena>,
    files: Mutex<HashMap<PathBuf, File>>,
    look: Option<Arc<LookAhead>>,
    rows: Arc<Counters>,
    at_start: Usage,
    peak: Mutex<Peak>,
    notes: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, Default)]
struct Peak {
    anonymous: u64,
    locked: u64,
    file: u64,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Largest RssAnon, VmLck and RssFile that were seen.
    pub anonymous: u64,
    pub locked: u64,
    pub file: u64,
    /// Read from storage, and faults that waited for it, since the plan was made.
    pub read: u64,
    pub major_faults: u64,
    /// `None` where experts are not in tiers.
    pub experts: Option<ExpertCounts>,
    /// `None` without a table that is read row by row.
    pub rows: Option<RowCounts>,
    /// What could not be done as planned.
    pub notes: Vec<String>,
}

impl Tiers {
    /// Makes ready to carry out `plan`, which was made from `facts`. `lookahead`: guess the experts of the next layer.
    pub fn new(facts: Facts, plan: Plan, lookahead: bool, model: &Path) -> Tiers {
        let streams = facts.model.mapped && facts.model.as_f32.is_none();
        let guess = lookahead && plan.streamed_bytes > 0;
        let look = streams.then(|| Arc::new(LookAhead::new(plan.window, guess, says_what_is_in_memory(model))));
        Tiers {
            arena: Mutex::new(Arena::new(plan.huge_pages, plan.lock_dense)),
            files: Mutex::default(),
            look,
            rows: Arc::default(),
            at_start: usage(),
            peak: Mutex::default(),
            notes: Mutex::default(),
            facts,
            plan,
        }
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Looks at what the process takes now, so that [`Tiers::report`] knows the largest. Cheap: once a chunk or answer.
    pub fn sample(&self) {
        let now = usage();
        let mut p = self.peak.lock().unwrap_or_else(PoisonError::into_inner);
        *p = Peak { anonymous: p.anonymous.max(now.anonymous), locked: p.locked.max(now.locked), file: p.file.max(now.file) };
    }

    /// What the run came to until now.
    pub fn report(&self) -> Report {
        self.sample();
        let (now, p) = (usage(), *self.peak.lock().unwrap_or_else(PoisonError::into_inner));
        Report {
            anonymous: p.anonymous,
            locked: p.locked,
            file: p.file,
            read: now.read.saturating_sub(self.at_start.read),
            major_faults: now.major_faults.saturating_sub(self.at_start.major_faults),
            experts: self.look.as_ref().map(|l| l.counts()),
            rows: (self.plan.table != TablePlace::Plain).then(|| self.rows.get()),
            notes: self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn resident(&self, layer: usize) -> usize {
        let at = self.facts.model.layers.iter().position(|l| l.layer == layer);
        at.map_or(0, |i| self.plan.resident[i] as usize)
    }
}

/// A system that answers only those who may write a file says of others' files that all of them is in memory.
fn says_what_is_in_memory(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // SAFETY: asks for a number.
        let me = unsafe { libc::geteuid() };
        std::fs::metadata(path).is_ok_and(|m| m.uid() == me) || File::options().append(true).open(path).is_ok()
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

impl Storage for Tiers {
    fn dense(&self, gguf: &Gguf, t: &TensorInfo) -> Result<Bytes, StorageError> {
        let Some(path) = gguf.files().nth(t.shard).filter(|_| self.plan.dense == Dense::Copied) else {
            let bytes = gguf.data(t);
            if self.facts.model.mapped {
                will_need(Stretch::of(&bytes));
            }
            return Ok(bytes);
        };
        let error = |e: std::io::Error| StorageError::Read {
            file: path.display().to_string(),
            offset: t.offset,
            bytes: t.byte_len,
            cause: e.to_string(),
        };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match files.entry(path.to_owned()) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => e.insert(File::open(path).map_err(error)?),
        };
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let len = usize::try_from(t.byte_len).map_err(|_| error(std::io::ErrorKind::OutOfMemory.into()))?;
        arena.read(file, t.offset, len).map_err(error)
    }

    fn stack(&self, gguf: &Gguf, t: &TensorInfo, layer: usize, experts: usize) -> Result<StackBytes, StorageError> {
        let bytes = gguf.data(t);
        let Some(look) = &self.look else { return Ok(StackBytes { bytes, checked: experts }) };
        let resident = self.resident(layer).min(experts);
        let here = &bytes[..bytes.len() / experts.max(1) * resident];
        // the system's read-ahead stays on: a page that was dropped before its use would else be read alone
        if !here.is_empty() {
            will_need(Stretch::of(here));
            if !self.plan.lock_experts {
                touch(here);
            } else if let Err(e) = lock_pages(Stretch::of(here)) {
                self.note(format!("{}: {resident} experts are not locked: {e}", t.name));
                touch(here);
            }
        }
        look.add(layer, &bytes, experts, resident);
        Ok(StackBytes { checked: resident, bytes })
    }

    fn copied_stack(&self, gguf: &Gguf, t: &TensorInfo) -> Bytes {
        let bytes = gguf.data(t);
        if self.facts.model.mapped {
            will_need(Stretch::of(&bytes));
        }
        bytes
    }

    fn embedding(&self, gguf: &Gguf, t: &TensorInfo) -> Bytes {
        let bytes = gguf.data(t);
        if self.facts.model.mapped && self.facts.model.as_f32.is_none() {
            // a row is far apart from the next: no read-ahead, and nothing stays that only the header check touched
            random(Stretch::of(&bytes));
            let_go(Stretch::of(&bytes));
        }
        bytes
    }

    fn rows(&self, gguf: &Gguf, t: &TensorInfo, _per_token: usize) -> Result<Option<Box<dyn RowReader>>, StorageError> {
        if self.facts.choices.ngram == NgramMode::Direct && !matches!(self.plan.table, TablePlace::Direct { .. }) {
            let found = match &self.facts.direct {
                _ if !self.facts.model.mapped => "a model that is part of the program".into(),
                Err(why) => why.clone(),
                Ok(_) => "none".to_owned(),
            };
            return Err(StorageError::Unavailable { what: "--ngram direct".into(), expected: "reads past the page cache".into(), found });
        }
        let Some(path) = gguf.files().nth(t.shard) else { return Ok(None) };
        let table = TableAt {
            file: path.display().to_string(),
            name: t.name.clone(),
            dtype: t.dtype,
            cols: t.cols() as usize,
            rows: t.rows(),
            offset: t.offset,
        };
        match self.plan.table {
            TablePlace::Plain => Ok(None),
            TablePlace::Mapped => Ok(Some(Box::new(MappedReader::new(table, gguf.data(t), Arc::clone(&self.rows))))),
            TablePlace::Direct { block } => {
                let error = |e: std::io::Error| StorageError::Read {
                    file: path.display().to_string(),
                    offset: t.offset,
                    bytes: block,
                    cause: e.to_string(),
                };
                let file = open_direct(path).map_err(error)?;
                let cache = self.plan.row_cache;
                let reader = DirectReader::new(file, table, block, cache, Arc::clone(&self.rows)).map_err(error)?;
                Ok(Some(Box::new(reader)))
            }
        }
    }

    fn watch(&self) -> Option<Arc<dyn ExpertWatch>> {
        self.look.clone().map(|l| l as Arc<dyn ExpertWatch>)
    }
}
