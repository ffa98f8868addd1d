//! Bounded reads of little-endian fields.

use crate::ErrorKind;

/// A read position in a file's bytes. Every read names what it is after, for the error.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0 }
    }

    /// Offset of the next byte from the start of the file.
    pub fn pos(&self) -> u64 {
        self.pos as u64
    }

    fn truncated(&self, what: &'static str, needed: u64) -> ErrorKind {
        ErrorKind::Truncated { what, offset: self.pos(), needed, remaining: (self.bytes.len() - self.pos) as u64 }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: u64, what: &'static str) -> Result<&'a [u8], ErrorKind> {
        let rest = &self.bytes[self.pos..];
        let head = usize::try_from(n).ok().and_then(|n| rest.get(..n)).ok_or_else(|| self.truncated(what, n))?;
        self.pos += head.len();
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ErrorKind> {
        let (head, _) = self.bytes[self.pos..].split_first_chunk::<N>().ok_or_else(|| self.truncated(what, N as u64))?;
        self.pos += N;
        Ok(*head)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, ErrorKind> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, ErrorKind> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of elements that take at least `min_bytes` each: refused if the rest of the file cannot hold them,
    /// so that a caller may reserve space for it.
    pub fn count(&mut self, min_bytes: u64, what: &'static str) -> Result<usize, ErrorKind> {
        let n = self.u64(what)?;
        self.check_room(n, min_bytes, what)?;
        Ok(n as usize)
    }

    /// Refuses `n` elements of at least `min_bytes` each where fewer bytes are left.
    pub fn check_room(&self, n: u64, min_bytes: u64, what: &'static str) -> Result<(), ErrorKind> {
        let needed = n.saturating_mul(min_bytes);
        if needed > (self.bytes.len() - self.pos) as u64 { Err(self.truncated(what, needed)) } else { Ok(()) }
    }

    /// A length-prefixed UTF-8 string.
    pub fn str(&mut self, what: &'static str) -> Result<&'a str, ErrorKind> {
        let n = self.u64(what)?;
        let offset = self.pos();
        std::str::from_utf8(self.take(n, what)?).map_err(|_| ErrorKind::Utf8 { what, offset })
    }
}
