//! [`BlockIo`] by io_uring.

use super::io::BlockIo;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A ring, its buffers, and the file.
pub(crate) struct Uring {
    ring: IoUring,
    file: File,
    buffers: *mut u8,
    depth: usize,
    buffer_len: usize,
    under_way: usize,
}

// SAFETY: the buffers are this value's own memory, reached only through it and by the kernel for reads that `Drop` waits for.
unsafe impl Send for Uring {}

impl Uring {
    /// A ring for `depth` reads of `file` into buffers of `buffer_len` bytes, a multiple of 512.
    ///
    /// # Errors
    /// The system has no io_uring or does not allow it, or there is no memory.
    pub fn new(file: File, depth: usize, buffer_len: usize) -> io::Result<Uring> {
        let ring = IoUring::new(u32::try_from(depth.next_power_of_two()).map_err(|_| io::ErrorKind::InvalidInput)?)?;
        // SAFETY: a new anonymous mapping, page-aligned: enough for every block size.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                depth * buffer_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Uring { ring, file, buffers: at.cast(), depth, buffer_len, under_way: 0 })
    }
}

/// True for errors that mean: the same call again.
fn again(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl BlockIo for Uring {
    fn depth(&self) -> usize {
        self.depth
    }

    fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    fn start(&mut self, slot: usize, offset: u64, at: usize, len: usize) -> io::Result<()> {
        assert!(slot < self.depth && at + len <= self.buffer_len, "a read within its buffer");
        // SAFETY: within the mapping, as just checked.
        let to = unsafe { self.buffers.add(slot * self.buffer_len + at) };
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), to, len).offset(offset).build().user_data(slot as u64);
        // SAFETY: file and buffer live until the read has ended: `Drop` waits for it.
        if unsafe { self.ring.submission().push(&read) }.is_err() {
            self.send()?;
            // SAFETY: as above.
            unsafe { self.ring.submission().push(&read) }.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        }
        self.under_way += 1;
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(e) if again(&e) => std::thread::yield_now(),
                Err(e) => return Err(e),
            }
        }
    }

    fn wait(&mut self) -> io::Result<(usize, io::Result<usize>)> {
        loop {
            if let Some(c) = self.ring.completion().next() {
                self.under_way -= 1;
                let came = usize::try_from(c.result()).map_err(|_| io::Error::from_raw_os_error(-c.result()));
                return Ok((c.user_data() as usize, came));
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if again(&e) => std::thread::yield_now(),
                Err(e) => return Err(e),
            }
        }
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        assert!(slot < self.depth);
        // SAFETY: within the mapping, and no read into this buffer is under way.
        unsafe { std::slice::from_raw_parts(self.buffers.add(slot * self.buffer_len), self.buffer_len) }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        while self.under_way > 0 {
            if self.wait().is_err() {
                // the kernel may still write to the buffers: they are left to it
                return;
            }
        }
        // SAFETY: the mapping is this value's own and no read is under way.
        unsafe { libc::munmap(self.buffers.cast(), self.depth * self.buffer_len) };
    }
}
