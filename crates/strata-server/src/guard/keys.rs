//! API keys: a file with one a line, compared in constant time, read again on demand.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

/// Bytes of a key file.
const MAX_FILE: u64 = 1 << 20;
/// Keys of a file; each request is compared with all.
const MAX_KEYS: usize = 1024;
const MIN_KEY: usize = 8;
const MAX_KEY: usize = 512;

/// Why a key file is not usable.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error("{}: cannot read: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: expected {expected}, found {found}", path.display())]
    Content { path: PathBuf, expected: String, found: String },
}

/// The keys that are accepted; without a file everybody is.
pub struct Keys {
    file: Option<PathBuf>,
    keys: RwLock<Arc<Vec<Vec<u8>>>>,
}

impl Keys {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has no keys or bad ones.
    pub fn new(file: Option<PathBuf>) -> Result<Keys, KeyError> {
        let keys = file.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Keys { file, keys: RwLock::new(Arc::new(keys)) })
    }

    pub fn required(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the file again; gives the number of keys.
    ///
    /// # Errors
    /// As [`Keys::new`]; the keys then stay as they were.
    pub fn reload(&self) -> Result<usize, KeyError> {
        let Some(file) = &self.file else { return Ok(0) };
        let keys = read(file)?;
        let n = keys.len();
        *self.keys.write().unwrap_or_else(|e| e.into_inner()) = Arc::new(keys);
        Ok(n)
    }

    /// Whether `key` is one of them. The time it takes tells no more than lengths.
    pub fn accept(&self, key: Option<&[u8]>) -> bool {
        if !self.required() {
            return true;
        }
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(|e| e.into_inner()));
        let found = key.unwrap_or_default();
        keys.iter().fold(Choice::from(0), |any, key| any | key.as_slice().ct_eq(found)).into()
    }
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>, KeyError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|f| f.take(MAX_FILE + 1).read_to_end(&mut text));
    read.map_err(|error| KeyError::Read { path: path.to_owned(), error })?;
    let bad = |expected: String, found: String| Err(KeyError::Content { path: path.to_owned(), expected, found });
    if text.len() as u64 > MAX_FILE {
        return bad(format!("at most {MAX_FILE} bytes"), "more".into());
    }
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).enumerate().filter(|(_, l)| !l.is_empty());
    let keys: Vec<(usize, &[u8])> = lines.collect();
    if keys.is_empty() || keys.len() > MAX_KEYS {
        return bad(format!("1 to {MAX_KEYS} keys, one a line"), keys.len().to_string());
    }
    for (line, key) in &keys {
        if !(MIN_KEY..=MAX_KEY).contains(&key.len()) || !key.iter().all(u8::is_ascii_graphic) {
            let expected = format!("a key of {MIN_KEY} to {MAX_KEY} visible ASCII characters in line {}", line + 1);
            return bad(expected, format!("{} bytes", key.len()));
        }
    }
    Ok(keys.into_iter().map(|(_, k)| k.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_file() {
        let path = std::env::temp_dir().join(format!("strata-keys-{}", std::process::id()));
        std::fs::write(&path, "first-key\n\n second-key \r\n").unwrap();
        let keys = Keys::new(Some(path.clone())).unwrap();
        for (key, good) in [("first-key", true), ("second-key", true), ("first-ke", false), ("first-key2", false), ("", false)] {
            assert_eq!(keys.accept(Some(key.as_bytes())), good, "{key}");
        }
        assert!(!keys.accept(None));
        std::fs::write(&path, "third-key").unwrap();
        assert!(!keys.accept(Some(b"third-key")));
        assert_eq!(keys.reload().unwrap(), 1);
        assert!(keys.accept(Some(b"third-key")) && !keys.accept(Some(b"first-key")));
        for bad in ["", "\n\n", "short", "with space in it", "ünïcode-key"] {
            std::fs::write(&path, bad).unwrap();
            assert!(keys.reload().is_err(), "{bad:?}");
        }
        assert!(keys.accept(Some(b"third-key")), "a bad file changes nothing");
        std::fs::remove_file(&path).unwrap();
        assert!(Keys::new(Some(path)).is_err());
        assert!(Keys::new(None).unwrap().accept(None));
    }
}
