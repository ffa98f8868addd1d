//! From a plan to a file or to memory: stretches are made by all threads while the one before is written.

use crate::error::SynthError;
use crate::plan::{Plan, Tensor};
use crate::recipe::Recipe;
use bytes::Bytes;
use memmap2::{Advice, MmapMut};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use strata_gguf::Gguf;

/// Bytes that one thread makes at a time, about.
const STRETCH: usize = 4 << 20;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Size of the file in bytes.
    pub bytes: u64,
    pub tensors: usize,
    pub parameters: u64,
}

/// A stretch of a tensor to be made.
struct Piece<'a> {
    tensor: &'a Tensor,
    at: u64,
    len: usize,
}

/// Writes the model that `recipe` describes to a file, made anew. `progress(done, all)` counts bytes.
///
/// # Errors
/// A recipe that is none, or a file that cannot be written.
pub fn write(recipe: &Recipe, path: &Path, threads: usize, progress: &mut dyn FnMut(u64, u64)) -> Result<Written, SynthError> {
    let io = |error| SynthError::Io { path: path.to_owned(), error };
    let plan = Plan::new(recipe)?;
    let bytes = plan.file_len()?;
    let file = File::create(path).map_err(io)?;
    stream(&plan, file, threads, &mut |done| progress(done, bytes))?.sync_all().map_err(io)?;
    Ok(Written { bytes, tensors: plan.tensors.len(), parameters: plan.parameters() })
}

/// Makes a model in memory, if it takes at most `limit` bytes; messages call it `name`.
///
/// # Errors
/// As [`write`], or not enough memory: nothing is allocated beyond the limit.
pub fn in_memory(recipe: &Recipe, name: &str, limit: u64) -> Result<Gguf, SynthError> {
    let plan = Plan::new(recipe)?;
    let needed = plan.file_len()?;
    if needed > limit || usize::try_from(needed).is_err() {
        return Err(SynthError::Memory { needed, available: limit });
    }
    let mut memory = MmapMut::map_anon(needed as usize).map_err(|error| SynthError::Alloc { needed, error })?;
    // fewer page faults and address lookups; where it is refused, only time is lost
    let _ = memory.advise(Advice::HugePage);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    stream(&plan, &mut memory[..], threads, &mut |_| ())?;
    Ok(Gguf::from_memory(name, Bytes::from_owner(memory))?)
}

fn stream<W: Write>(plan: &Plan, out: W, threads: usize, progress: &mut dyn FnMut(u64)) -> Result<W, SynthError> {
    let mut out = plan.writer()?.begin(out)?;
    let mut pieces = plan.tensors.iter().flat_map(|tensor| {
        let step = tensor.filler.step();
        let len = (STRETCH / step).max(1) * step;
        let all = tensor.byte_len();
        (0..all.div_ceil(len as u64)).map(move |i| {
            let at = i * len as u64;
            Piece { tensor, at, len: (all - at).min(len as u64) as usize }
        })
    });
    let threads = threads.clamp(1, 64);
    let mut take = || pieces.by_ref().take(threads).collect::<Vec<_>>();
    let (mut next, mut made) = (take(), Vec::<Vec<u8>>::new());
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut done = 0;
    while !next.is_empty() || !made.is_empty() {
        let fresh = std::thread::scope(|scope| {
            let workers: Vec<_> = next
                .drain(..)
                .map(|p| {
                    let mut buffer = spare.pop().unwrap_or_default();
                    scope.spawn(move || {
                        buffer.resize(p.len, 0);
                        p.tensor.filler.fill(p.at, &mut buffer);
                        buffer
                    })
                })
                .collect();
            for bytes in made.drain(..) {
                out.write(&bytes)?;
                done += bytes.len() as u64;
                spare.push(bytes);
            }
            progress(done);
            Ok::<_, SynthError>(workers.into_iter().map(|w| w.join().expect("filling does not panic")).collect::<Vec<_>>())
        })?;
        made = fresh;
        next = take();
    }
    Ok(out.finish()?)
}
