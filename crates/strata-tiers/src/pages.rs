//! Advice on mapped bytes, locks, and whether pages are in memory. All of it hints: a system that refuses is taken at its word.

use crate::machine::page_size;
use std::sync::OnceLock;

fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| page_size() as usize)
}

/// A stretch of mapped memory by its address, to be kept in tables beside the owner of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub at: usize,
    pub len: usize,
}

impl Stretch {
    pub fn of(bytes: &[u8]) -> Stretch {
        Stretch { at: bytes.as_ptr() as usize, len: bytes.len() }
    }

    /// The whole pages that the stretch touches.
    fn outer(self) -> Stretch {
        let at = self.at / page() * page();
        Stretch { at, len: (self.at + self.len).next_multiple_of(page()) - at }
    }

    /// The whole pages that lie within it.
    fn inner(self) -> Stretch {
        let at = self.at.next_multiple_of(page());
        Stretch { at, len: ((self.at + self.len) / page() * page()).saturating_sub(at) }
    }
}

/// Bytes that one call of advice asks for: the kernel cuts longer requests at its own read-ahead size, 128 KiB by default.
const ADVICE: usize = 128 << 10;

/// Starts reading what is not in memory; does not wait for it.
#[cfg(unix)]
pub(crate) fn will_need(s: Stretch) {
    let s = s.outer();
    for from in (0..s.len).step_by(ADVICE) {
        // SAFETY: the pages belong to a mapping that the caller keeps alive; this advice changes no contents.
        unsafe { libc::madvise((s.at + from) as *mut _, ADVICE.min(s.len - from), libc::MADV_WILLNEED) };
    }
}

/// Switches off read-ahead around single pages of the stretch.
#[cfg(unix)]
pub(crate) fn random(s: Stretch) {
    let s = s.inner();
    if s.len > 0 {
        // SAFETY: as above.
        unsafe { libc::madvise(s.at as *mut _, s.len, libc::MADV_RANDOM) };
    }
}

/// Lets go of mapped file pages: they may stay in the page cache but are not this process's any more.
#[cfg(unix)]
pub(crate) fn let_go(s: Stretch) {
    let s = s.inner();
    if s.len > 0 {
        // SAFETY: as above; a shared or private read-only file mapping is filled from the file again when it is touched.
        unsafe { libc::madvise(s.at as *mut _, s.len, libc::MADV_DONTNEED) };
    }
}

/// Reads the stretch in and keeps it in memory.
///
/// # Errors
/// The system refuses.
#[cfg(unix)]
pub(crate) fn lock(s: Stretch) -> std::io::Result<()> {
    let s = s.outer();
    // SAFETY: as above; locking changes no contents.
    if unsafe { libc::mlock(s.at as *const _, s.len) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Reads every page of the stretch once.
pub(crate) fn touch(bytes: &[u8]) {
    let sum = bytes.iter().step_by(page()).fold(0u8, |a, b| a ^ b);
    std::hint::black_box(sum);
}

/// True if the pages of the first and the last byte are in memory; `None` if the system does not tell.
#[cfg(target_os = "linux")]
pub(crate) fn in_memory(s: Stretch) -> Option<bool> {
    let one = |at: usize| {
        let mut state = 0u8;
        // SAFETY: one page of a live mapping, one byte of answer.
        let rc = unsafe { libc::mincore((at / page() * page()) as *mut _, page(), &raw mut state) };
        (rc == 0).then_some(state & 1 == 1)
    };
    Some(one(s.at)? && one(s.at + s.len.max(1) - 1)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn in_memory(_: Stretch) -> Option<bool> {
    None
}

#[cfg(not(unix))]
mod elsewhere {
    use super::Stretch;

    pub(crate) fn will_need(_: Stretch) {}
    pub(crate) fn random(_: Stretch) {}
    pub(crate) fn let_go(_: Stretch) {}
    pub(crate) fn lock(_: Stretch) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
#[cfg(not(unix))]
pub(crate) use elsewhere::{let_go, lock, random, will_need};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_round_to_pages() {
        let p = page();
        let s = Stretch { at: 3 * p + 5, len: 2 * p };
        assert_eq!((s.outer(), s.inner()), (Stretch { at: 3 * p, len: 3 * p }, Stretch { at: 4 * p, len: p }));
        assert_eq!(Stretch { at: p + 1, len: 5 }.inner().len, 0);
        assert_eq!(Stretch { at: p, len: p }.inner(), Stretch { at: p, len: p }.outer());
    }
}
