//! The allocator of the C library.

/// Blocks of this many bytes and more are maps of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 128 << 10;

/// Has large blocks given back to the system when they are freed. glibc would soon take them from its heap instead, since it raises its
/// threshold with every large block that is freed; states of many sizes that come and go leave holes there, and a server that runs
/// for days holds more and more memory. To be called at the start. Other C libraries are left as they are.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: changes a number of the allocator; glibc allows it at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
