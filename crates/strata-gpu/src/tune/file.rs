//! The file of a device's measured dispatch table: `name = value` lines between a head that names the device and a checksum.

use super::allowed;
use crate::compile::Cache;
use crate::driver::DeviceInfo;
use crate::error::{GpuError, Result};
use std::path::{Path, PathBuf};
use std::{fs, io, process};

const FORM: &str = "# strata dispatch table, form 1";
const CHECKSUM: &str = "# checksum: ";

/// Where the table of a device is: beside the compiled kernels.
pub fn path(cache: &Cache, info: &DeviceInfo) -> Option<PathBuf> {
    let name = format!("{} {}", info.name, info.arch).to_lowercase();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    cache.dir().map(|d| d.join(format!("dispatch-{name}.txt")))
}

fn head(info: &DeviceInfo) -> String {
    format!("{FORM}\n# device: {}\n# arch: {}, {} units\n", info.name.replace(['\n', '\r'], " "), info.arch, info.units)
}

/// The text of a table.
pub fn text(info: &DeviceInfo, values: &[(String, String)]) -> String {
    let lines: String = values.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    let body = head(info) + &lines;
    format!("{body}{CHECKSUM}{:016x}\n", fnv64(body.as_bytes()))
}

/// The values of a table of this device.
pub fn parse(text: &str, info: &DeviceInfo) -> std::result::Result<Vec<(String, String)>, String> {
    let body = text.find(CHECKSUM).map(|at| &text[..at]).ok_or("it has no checksum")?;
    if text[body.len()..] != format!("{CHECKSUM}{:016x}\n", fnv64(body.as_bytes())) {
        return Err("its checksum is another one".into());
    }
    let lines = body.strip_prefix(&head(info)).ok_or("it is of another form or device")?;
    let pair = |l: &str| l.split_once(" = ").map(|(n, v)| (n.to_owned(), v.to_owned())).ok_or_else(|| format!("{l:?} is no value"));
    let values = lines.lines().map(pair).collect::<std::result::Result<Vec<_>, _>>()?;
    allowed(&values, &info.arch).map(|()| values)
}

/// The values for a device: none where there is no file; a note where it cannot be used.
pub fn load(cache: &Cache, info: &DeviceInfo) -> std::result::Result<Vec<(String, String)>, String> {
    let Some(path) = path(cache, info) else { return Ok(Vec::new()) };
    let ignored = |reason: String| format!("{} is ignored: {reason} (`strata kernels tune` writes it anew)", path.display());
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text, info).map_err(ignored),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(ignored(e.to_string())),
    }
}

/// Writes a table; it appears whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", process::id()));
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&temporary, text));
    made.and_then(|()| fs::rename(&temporary, path)).map_err(|source| GpuError::Io { path: path.display().to_string(), source })
}

/// FNV-1a, 64 bits.
fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, arch: &str) -> DeviceInfo {
        DeviceInfo { name: name.into(), arch: arch.into(), units: 8, l2_bytes: 0, memory_bytes: 0, shared_bytes: 0 }
    }

    fn pairs(values: &[(&str, &str)]) -> Vec<(String, String)> {
        values.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn tables_come_back_and_others_do_not() {
        let card = info("A card / 2", "sm_90a");
        let values = pairs(&[("score.rows", "3"), ("mat_vec.q4_k.c4.2560", "r2")]);
        let good = text(&card, &values);
        assert_eq!(parse(&good, &card), Ok(values));
        assert!(parse(&good, &info("A card / 3", "sm_90a")).is_err() && parse(&good, &info("A card / 2", "sm_90")).is_err());
        for bad in ["", "\n", CHECKSUM, &good[..good.len() - 1], &good.replace("= 3", "= 4"), &good[good.find('\n').unwrap()..]] {
            assert!(parse(bad, &card).is_err(), "{bad}");
        }
        for (i, _) in good.char_indices() {
            assert!(parse(&good[..i], &card).is_err());
        }
    }

    #[test]
    fn what_is_not_exact_or_unknown_does_not_enter() {
        let card = info("card", "sm_90a");
        for (value, word) in [
            (("score.matrix", "1"), "not exact: qsa_scores_bf16"),
            (("attention.chunk.int8", "attn_chunk_int8_f32"), "not exact: attn_chunk_int8_f32"),
            (("score.speed", "1"), "no switch score.speed"),
            (("score.rows", "many"), "no switch score.rows that takes many"),
        ] {
            let found = parse(&text(&card, &pairs(&[value])), &card).unwrap_err();
            assert!(found.contains(word), "{found}");
        }
    }

    #[test]
    fn no_file_is_no_note() {
        assert_eq!(load(&Cache::at("/dev/null/nowhere".into()), &info("x", "y")).map_err(|e| e.contains("is ignored")), Err(true));
        assert_eq!(load(&Cache::at(std::env::temp_dir().join("strata-none")), &info("x", "y")), Ok(Vec::new()));
        let name = path(&Cache::at("d".into()), &info("A/../B", "sm_90a")).unwrap();
        assert_eq!(name, Path::new("d").join("dispatch-a----b-sm-90a.txt"));
    }
}
