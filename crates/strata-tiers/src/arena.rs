//! Anonymous memory for weights, in huge pages where the system has them.

use bytes::Bytes;
use std::fs::File;
use std::io;

/// Alignment of each tensor.
const ALIGN: usize = 64;

/// Memory that is filled once, then shared. Every piece keeps its own mapping: no piece outlives its bytes, none is moved.
pub(crate) struct Arena {
    chunk: Option<Chunk>,
    used: usize,
    huge: bool,
    lock: bool,
    /// Bytes of all mappings made.
    pub taken: u64,
}

/// Room that is mapped at a time, at least: pieces smaller than that share.
const CHUNK: usize = 64 << 20;
/// A huge page of the common machines.
const HUGE: usize = 2 << 20;

/// A mapping of its own, handed out in disjoint pieces.
#[derive(Clone)]
struct Chunk(std::sync::Arc<Map>);

struct Map {
    at: *mut u8,
    len: usize,
    /// The mapping as the system gave it, before its start was aligned.
    whole: (*mut u8, usize),
}

// SAFETY: plain memory; pieces are written only by `Arena::read`, which gives each piece out once and shares it read-only after.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: the mapping is this value's own and nobody holds a piece any more.
        unsafe {
            libc::munmap(self.whole.0.cast(), self.whole.1)
        };
    }
}

/// A piece that keeps its chunk alive.
struct Piece {
    chunk: Chunk,
    from: usize,
    len: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the piece lies within the chunk and was filled before it was shared.
        unsafe { std::slice::from_raw_parts(self.chunk.0.at.add(self.from), self.len) }
    }
}

impl Arena {
    pub fn new(huge: bool, lock: bool) -> Arena {
        Arena { chunk: None, used: 0, huge, lock, taken: 0 }
    }

    /// `len` bytes of `file` from `offset` on, in memory.
    ///
    /// # Errors
    /// There is no memory, or the file cannot be read.
    pub fn read(&mut self, file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
        let (chunk, from) = self.take(len)?;
        // SAFETY: the piece is new: nobody else has it.
        let out = unsafe { std::slice::from_raw_parts_mut(chunk.0.at.add(from), len) };
        #[cfg(unix)]
        std::os::unix::fs::FileExt::read_exact_at(file, out, offset)?;
        #[cfg(not(unix))]
        {
            let _ = (file, offset, out);
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Bytes::from_owner(Piece { chunk, from, len }))
    }

    fn take(&mut self, len: usize) -> io::Result<(Chunk, usize)> {
        let from = self.used.next_multiple_of(ALIGN);
        if let Some(c) = self.chunk.as_ref().filter(|c| from.checked_add(len).is_some_and(|end| end <= c.0.len)) {
            self.used = from + len;
            return Ok((c.clone(), from));
        }
        // what is left of a chunk is never touched, and so costs nothing
        let chunk = Chunk(std::sync::Arc::new(map(len.max(CHUNK), self.huge, self.lock)?));
        self.taken += chunk.0.len as u64;
        self.used = len;
        self.chunk = Some(chunk.clone());
        Ok((chunk, 0))
    }
}

#[cfg(unix)]
fn map(len: usize, huge: bool, lock: bool) -> io::Result<Map> {
    let len = len.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let whole = len.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new anonymous mapping at an address of the system's choice.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = (at as usize).next_multiple_of(HUGE) - at as usize;
    // SAFETY: `start + len` is within `whole`.
    let map = Map { at: unsafe { at.cast::<u8>().add(start) }, len, whole: (at.cast(), whole) };
    #[cfg(target_os = "linux")]
    if huge {
        // SAFETY: pages of the mapping just made; advice only.
        unsafe { libc::madvise(map.at.cast(), map.len, libc::MADV_HUGEPAGE) };
    }
    if lock {
        // SAFETY: as above. A refusal leaves the memory unlocked, which the report shows.
        unsafe { libc::mlock(map.at.cast(), map.len) };
    }
    Ok(map)
}

#[cfg(not(unix))]
fn map(_: usize, _: bool, _: bool) -> io::Result<Map> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pieces_hold_the_bytes_of_the_file_and_outlive_the_arena() {
        let path = std::env::temp_dir().join(format!("strata-arena-{}", std::process::id()));
        let data: Vec<u8> = (0..100_000u32).map(|i| (i * 31 % 251) as u8).collect();
        File::create(&path).unwrap().write_all(&data).unwrap();
        let file = File::open(&path).unwrap();
        let mut arena = Arena::new(true, false);
        let pieces: Vec<(usize, Bytes)> = (0..40).map(|i| (i * 777, arena.read(&file, i as u64 * 777, 1 + i * 1000).unwrap())).collect();
        assert!(arena.read(&file, 99_999, 2).is_err(), "beyond the end");
        assert_eq!(arena.taken, CHUNK as u64);
        drop(arena);
        for (at, p) in pieces {
            assert_eq!(&p[..], &data[at..at + p.len()]);
            assert_eq!(p.as_ptr() as usize % ALIGN, 0);
        }
        std::fs::remove_file(path).unwrap();
    }
}
