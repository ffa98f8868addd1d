//! A cache of compiled images on disk.
//!
//! An entry's name is a hash of its key; the key itself (compiler, options, every source) lies in the entry and is compared, so a
//! collision is a miss. Entries appear by rename, so a reader sees a whole one or none. A damaged entry is a miss and gets replaced.
//! A cache that cannot be read or written is no error: then everything is compiled.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

const MAGIC: &[u8; 8] = b"STRATAK1";

/// A directory of images.
pub struct Cache {
    dir: Option<PathBuf>,
}

impl Cache {
    /// `STRATA_CACHE`, else `$XDG_CACHE_HOME/strata`, else `~/.cache/strata`; `kernels` below it.
    pub fn of_user() -> Cache {
        let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let base = set("STRATA_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("strata")))
            .or_else(|| set("HOME").map(|d| d.join(".cache/strata")))
            .or_else(|| set("LOCALAPPDATA").map(|d| d.join("strata")));
        Cache { dir: base.map(|d| d.join("kernels")) }
    }

    /// In a directory of one's own.
    pub fn at(dir: PathBuf) -> Cache {
        Cache { dir: Some(dir) }
    }

    /// The directory, if the environment names one.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.dir.as_ref().map(|d| d.join(format!("{:032x}.bin", fnv128(key.as_bytes()))))
    }

    /// Image and log of a key.
    pub fn get(&self, key: &str) -> Option<(Vec<u8>, String)> {
        unpack(&fs::read(self.path(key)?).ok()?, key)
    }

    /// Keeps an image.
    pub fn put(&self, key: &str, image: &[u8], log: &str) {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let Some(path) = self.path(key) else { return };
        let temporary = path.with_extension(format!("{}-{}.tmp", process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&temporary, pack(key, image, log)));
        if written.and_then(|()| fs::rename(&temporary, &path)).is_err() {
            // Losing an entry costs a compilation only; what may be left of it is removed as far as that works.
            let _ = fs::remove_file(&temporary);
        }
    }
}

/// Magic, hash of what follows, then three times length and bytes: key, log, image.
fn pack(key: &str, image: &[u8], log: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(key.len() + log.len() + image.len() + 24);
    for part in [key.as_bytes(), log.as_bytes(), image] {
        body.extend_from_slice(&(part.len() as u64).to_le_bytes());
        body.extend_from_slice(part);
    }
    [&MAGIC[..], &fnv128(&body).to_le_bytes(), &body].concat()
}

fn unpack(entry: &[u8], key: &str) -> Option<(Vec<u8>, String)> {
    let (hash, mut body) = entry.strip_prefix(MAGIC)?.split_at_checked(16)?;
    if fnv128(body).to_le_bytes() != hash {
        return None;
    }
    let mut part = || {
        let (length, rest) = body.split_at_checked(8)?;
        let (part, rest) = rest.split_at_checked(u64::from_le_bytes(length.try_into().ok()?).try_into().ok()?)?;
        body = rest;
        Some(part)
    };
    let (found, log, image) = (part()?, part()?, part()?);
    (found == key.as_bytes() && body.is_empty()).then(|| (image.to_vec(), String::from_utf8_lossy(log).into_owned()))
}

/// FNV-1a, 128 bits.
fn fnv128(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |h, b| (h ^ u128::from(*b)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(fnv128(b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv128(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }

    #[test]
    fn entries_come_back_and_damaged_ones_do_not() {
        let dir = env::temp_dir().join(format!("strata-cache-test-{}", process::id()));
        let cache = Cache::at(dir.clone());
        assert_eq!(cache.get("key"), None);
        cache.put("key", b"image", "log");
        assert_eq!(cache.get("key"), Some((b"image".to_vec(), "log".to_string())));
        let path = cache.path("key").unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(cache.get("key"), None, "cut at {cut}");
            let mut flipped = whole.clone();
            flipped[cut] ^= 4;
            fs::write(&path, &flipped).unwrap();
            assert_eq!(cache.get("key"), None, "bit flipped at {cut}");
        }
        // Another key's entry under this name: a collision of hashes.
        fs::write(&path, pack("other", b"image", "log")).unwrap();
        assert_eq!(cache.get("key"), None);
        cache.put("key", b"new", "");
        assert_eq!(cache.get("key"), Some((b"new".to_vec(), String::new())));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "temporary files are gone");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let cache = Cache::at(PathBuf::from("/dev/null/kernels"));
        cache.put("key", b"image", "log");
        assert_eq!(cache.get("key"), None);
    }
}
