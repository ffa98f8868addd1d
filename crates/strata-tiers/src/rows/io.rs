//! Aligned reads that are under way while others compute: the trait, and files for them.

use std::fs::File;
use std::io;
use std::path::Path;

/// Reads into numbered buffers. An implementation owns the buffers, and no buffer is used by two reads at once.
pub(crate) trait BlockIo: Send {
    /// How many reads may be under way.
    fn depth(&self) -> usize;

    /// Bytes of a buffer.
    fn buffer_len(&self) -> usize;

    /// Starts to read `len` bytes at `offset` of the file to place `at` of buffer `slot`, all multiples of the block.
    ///
    /// # Errors
    /// It could not be started.
    fn start(&mut self, slot: usize, offset: u64, at: usize, len: usize) -> io::Result<()>;

    /// Sends what was started on its way.
    ///
    /// # Errors
    /// The system refuses.
    fn send(&mut self) -> io::Result<()>;

    /// Waits until a read has ended: its slot, and how many bytes came.
    ///
    /// # Errors
    /// The system refuses to wait. (A failed read is an `Ok` with an error in it.)
    fn wait(&mut self) -> io::Result<(usize, io::Result<usize>)>;

    /// A buffer of which no read is under way.
    fn buffer(&self, slot: usize) -> &[u8];
}

/// Opens a file for reads past the page cache.
///
/// # Errors
/// The file cannot be opened, or its file system has no such reads.
pub(crate) fn open_direct(path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        File::options().read(true).custom_flags(libc::O_DIRECT).open(path)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The block that offsets and sizes of such reads must be multiples of, as the file system says; 4096 where it does not.
pub(crate) fn block_size(file: &File) -> u64 {
    const COMMON: u64 = 4096;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: a struct of plain numbers, which the call fills; the path is empty as the flag asks for.
        let (rc, x) = unsafe {
            let mut x: libc::statx = std::mem::zeroed();
            let rc = libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut x);
            (rc, x)
        };
        if rc == 0 && x.stx_mask & libc::STATX_DIOALIGN != 0 && x.stx_dio_offset_align > 0 {
            let align = u64::from(x.stx_dio_offset_align.max(x.stx_dio_mem_align));
            return align.next_power_of_two().clamp(512, 65_536);
        }
    }
    let _ = file;
    COMMON
}
