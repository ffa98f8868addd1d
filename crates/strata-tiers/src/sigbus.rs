//! A file that is cut while it is mapped ends the program by SIGBUS: say so before.

/// Prints one line when a mapped file can no longer be read, then ends the program with code 1.
pub fn explain_sigbus() {
    #[cfg(unix)]
    {
        extern "C" fn handler(_: libc::c_int) {
            const LINE: &[u8] =
                b"error: a mapped model file could not be read: it was cut or changed while in use, or its storage failed\n";
            // SAFETY: write and _exit may be called in a signal handler; the line is static.
            unsafe {
                libc::write(2, LINE.as_ptr().cast(), LINE.len());
                libc::_exit(1);
            }
        }
        // SAFETY: the handler calls only what is allowed in one and does not return.
        unsafe { libc::signal(libc::SIGBUS, handler as *const () as libc::sighandler_t) };
    }
}
