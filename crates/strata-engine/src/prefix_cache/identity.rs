//! Which model a file holds, without reading all of it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use twox_hash::XxHash3_128;

/// Bytes at a file's beginning that are hashed whole: header, metadata and tensor table of any model we know.
const HEAD: u64 = 64 << 20;
/// Pages of weights that are hashed besides, spread evenly, and their bytes.
const SAMPLES: u64 = 1024;
const SAMPLE: u64 = 4096;

/// A number for the models in `files` (trunk and its splits, MTP block), bound as `binding` says: the hash of their sizes, beginnings
/// and sampled pages. What is found of a file is kept in `remember`, a directory, until the file's size or time of change is another.
///
/// # Errors
/// A file cannot be read.
pub fn identity(files: &[&Path], binding: &str, remember: Option<&Path>) -> io::Result<u128> {
    let mut all = binding.as_bytes().to_vec();
    for file in files {
        all.extend_from_slice(&of_file(file, remember)?.to_le_bytes());
    }
    Ok(XxHash3_128::oneshot(&all))
}

fn of_file(file: &Path, remember: Option<&Path>) -> io::Result<u128> {
    let path = fs::canonicalize(file)?;
    let meta = fs::metadata(&path)?;
    let time = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let key = format!("{} {time} {}", meta.len(), path.display());
    let note = remember.map(|dir| note_path(dir, &path));
    if let Some(found) = note.as_ref().and_then(|n| remembered(n, &key)) {
        return Ok(found);
    }
    let hash = hash(&mut File::open(&path)?, meta.len())?;
    if let Some(note) = note {
        // without the note it is hashed again
        let _ = fs::write(note, format!("{hash:032x} {key}\n"));
    }
    Ok(hash)
}

fn note_path(dir: &Path, file: &Path) -> PathBuf {
    let mut name = String::from("strata-model-");
    let _ = write!(name, "{:016x}.txt", XxHash3_128::oneshot(file.as_os_str().as_encoded_bytes()) as u64);
    dir.join(name)
}

/// The hash in a note, if it is of this file as it is now.
fn remembered(note: &Path, key: &str) -> Option<u128> {
    let mut text = String::new();
    File::open(note).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
    let (hash, of) = text.split_once(' ')?;
    (of.strip_suffix('\n')? == key && hash.len() == 32).then(|| u128::from_str_radix(hash, 16).ok())?
}

fn hash(file: &mut (impl Read + Seek), len: u64) -> io::Result<u128> {
    let mut bytes = len.to_le_bytes().to_vec();
    file.take(HEAD).read_to_end(&mut bytes)?;
    if len > HEAD {
        let step = ((len - HEAD) / SAMPLES).max(SAMPLE);
        // the last page is one of them
        let starts = (HEAD..len.saturating_sub(SAMPLE)).step_by(step as usize).chain([len - SAMPLE]);
        for at in starts {
            file.seek(SeekFrom::Start(at))?;
            file.take(SAMPLE).read_to_end(&mut bytes)?;
        }
    }
    Ok(XxHash3_128::oneshot(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_change_at_a_hashed_place_tells() {
        let len = HEAD + 40 * SAMPLES * SAMPLE;
        let mut file = Cursor::new(vec![7u8; len as usize]);
        let of = |file: &mut Cursor<Vec<u8>>| {
            file.set_position(0);
            hash(file, len).unwrap()
        };
        let first = of(&mut file);
        assert_eq!(of(&mut file), first);
        // header, the first sampled page, one in the middle, the end
        for at in [0, HEAD - 1, HEAD, HEAD + 40 * SAMPLE * 500 + 9, len - 1] {
            file.get_mut()[at as usize] ^= 1;
            assert_ne!(of(&mut file), first, "{at}");
            file.get_mut()[at as usize] ^= 1;
        }
        // not every byte is looked at: that is what it costs
        file.get_mut()[(HEAD + SAMPLE + 1) as usize] ^= 1;
        assert_eq!(of(&mut file), first);
        assert_ne!(hash(&mut Cursor::new(vec![7u8; 9]), 9).unwrap(), hash(&mut Cursor::new(vec![7u8; 10]), 10).unwrap());
    }

    #[test]
    fn a_note_holds_until_the_file_changes() {
        let dir = std::env::temp_dir().join(format!("strata-identity-test-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("model.gguf");
        fs::write(&file, b"one").unwrap();
        let of = |binding| identity(&[&file], binding, Some(&dir)).unwrap();
        let one = of("plain");
        assert_ne!(of("other"), one);
        // the note is believed, as long as it is of this size and time
        let note = note_path(&dir, &fs::canonicalize(&file).unwrap());
        let text = fs::read_to_string(&note).unwrap();
        fs::write(&note, text.replacen(&text[..4], "0000", 1)).unwrap();
        let noted = of("plain");
        assert_ne!(noted, one);
        fs::write(&note, "rubbish").unwrap();
        assert_eq!(of("plain"), one);
        fs::write(&file, b"two, longer").unwrap();
        assert_ne!(of("plain"), one);
        fs::remove_dir_all(&dir).unwrap();
        assert!(identity(&[&file], "plain", None).is_err());
    }
}
