//! Compiles a kernel file for the CPU, with a disk cache.

use super::ShimSide;
use crate::compile::toolchain::reach::{Source, reachable};
use crate::error::{GpuError, Result};
use crate::registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs};

/// What every object holds beside its kernels.
const RUNTIME: &str = "side/cpu_runtime.cpp";

/// Flags of every build. Contraction off: FMAs are written. AVX2 level for hardware FMA and half conversion.
const FLAGS: [&str; 9] =
    ["-std=c++17", "-O2", "-g1", "-march=x86-64-v3", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-DSTRATA_SHIM=1"];

/// A C++ compiler that starts: `STRATA_CXX`, else the first of the usual names. Returns its command and version line.
pub fn compiler() -> Result<(String, String)> {
    static FOUND: OnceLock<Option<(String, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let names = env::var("STRATA_CXX").map_or_else(|_| ["c++", "g++", "clang++", "clang++-22"].map(String::from).to_vec(), |c| vec![c]);
        names.into_iter().find_map(|name| {
            let out = Command::new(&name).arg("--version").output().ok().filter(|o| o.status.success())?;
            Some((name, String::from_utf8_lossy(&out.stdout).lines().next()?.to_owned()))
        })
    });
    found.clone().ok_or_else(|| GpuError::Missing {
        what: "a C++ compiler",
        tried: "STRATA_CXX, c++, g++, clang++".into(),
        hint: "the CPU shim compiles kernels when it runs; install g++ or clang".into(),
    })
}

/// Sanitizers the shim is built with: `STRATA_SHIM_SANITIZE` (`address,undefined`), usually none.
fn sanitizers() -> Option<String> {
    env::var("STRATA_SHIM_SANITIZE").ok().filter(|s| !s.is_empty())
}

/// The path, as bytes, of a shared object with the kernels of `file`.
pub(super) fn image(file: &str, side: ShimSide, defines: &[&str]) -> Result<Vec<u8>> {
    let (command, version) = compiler()?;
    let mut unit = format!("#include \"{RUNTIME}\"\n#include \"{file}\"\n");
    for k in registry::all().filter(|k| k.file == file && k.runs_on(side.arch())) {
        let _ = writeln!(unit, "SHIM_EXPORT({}, \"{}\")", k.name, k.args);
    }
    let mut flags: Vec<String> = FLAGS.map(String::from).to_vec();
    flags.extend(side.defines().iter().chain(defines).map(|d| format!("-D{d}")));
    if let Some(s) = sanitizers() {
        flags.extend([format!("-fsanitize={s}"), "-fno-sanitize-recover=all".into()]);
    }
    let job = Job { unit, sources: sources(file)?, command, flags };
    let dir = env::temp_dir().join(format!("strata-shim-{}", user()));
    let stem = file.replace(['/', '.'], "_");
    let object = dir.join(format!("{stem}-{}-{:016x}.so", side.arch(), job.key(&version)));
    let turn = turn(&object);
    let _held = turn.lock().unwrap_or_else(PoisonError::into_inner);
    if !object.exists()
        && let Some(log) = job.build(&dir, &object)?
    {
        return Err(GpuError::Compile { file: file.into(), arch: side.arch().into(), log });
    }
    Ok(object.into_os_string().into_encoded_bytes())
}

/// The lock of an object: of threads that want the same one, one builds it.
fn turn(object: &Path) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    TURNS.lock().unwrap_or_else(PoisonError::into_inner).entry(object.to_owned()).or_default().clone()
}

/// The runtime, the kernel file, and all that they include.
fn sources(file: &str) -> Result<Vec<Source>> {
    let mut all = reachable(RUNTIME)?;
    all.extend(reachable(file)?);
    all.sort_unstable_by_key(|(path, _)| *path);
    all.dedup();
    Ok(all)
}

/// What an object is made of.
struct Job {
    unit: String,
    sources: Vec<Source>,
    command: String,
    flags: Vec<String>,
}

impl Job {
    /// FNV-1a over everything the object depends on.
    fn key(&self, version: &str) -> u64 {
        let flags = self.flags.join(" ");
        let parts = [&*self.unit, &flags, &self.command, version].into_iter().chain(self.sources.iter().flat_map(|(p, t)| [*p, *t]));
        let bytes = parts.flat_map(|s| s.bytes().chain([0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }

    /// Makes the object. What the compiler says if it fails.
    fn build(&self, dir: &Path, object: &Path) -> Result<Option<String>> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |source| GpuError::Io { path, source }
        };
        // a folder of its own, so that processes that build the same object do not meet
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let work = dir.join(format!("build-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
        for (path, text) in &self.sources {
            let at: PathBuf = work.join(path);
            fs::create_dir_all(at.parent().unwrap_or(&work)).map_err(io(&at))?;
            fs::write(&at, text).map_err(io(&at))?;
        }
        let main = work.join("unit.cpp");
        fs::write(&main, &self.unit).map_err(io(&main))?;
        let made = work.join("unit.so");
        let command = Path::new(&self.command);
        let out = Command::new(command).args(&self.flags).arg("-I").arg(&work).arg(&main).arg("-o").arg(&made).output();
        let out = out.map_err(io(command))?;
        let log = if out.status.success() {
            fs::rename(&made, object).map_err(io(object))?;
            None
        } else {
            Some(String::from_utf8_lossy(&out.stderr).into_owned())
        };
        let _ = fs::remove_dir_all(&work);
        Ok(log)
    }
}

fn user() -> String {
    env::var("USER").or_else(|_| env::var("USERNAME")).unwrap_or_else(|_| "any".into()).replace(|c: char| !c.is_alphanumeric(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_depend_on_what_they_include() {
        let paths = |file| sources(file).unwrap().into_iter().map(|s| s.0).collect::<Vec<_>>();
        let merge = paths("attention/merge.cu");
        assert!(merge.contains(&RUNTIME) && merge.contains(&"side/cpu.cuh") && merge.contains(&"attention/merge.cu"), "{merge:?}");
        assert!(!merge.iter().any(|p| p.starts_with("products/") || p.starts_with("selection/")), "{merge:?}");
        assert!(merge.is_sorted() && merge.windows(2).all(|w| w[0] != w[1]), "{merge:?}");
    }

    #[test]
    fn keys_follow_every_part() {
        let job = |unit: &str, text, command: &str, flag: &str| Job {
            unit: unit.into(),
            sources: vec![("a.cu", text)],
            command: command.into(),
            flags: vec![flag.into()],
        };
        let all = [
            job("unit", "text", "c++", "-O2").key("1"),
            job("unit", "text", "c++", "-O2").key("2"),
            job("other", "text", "c++", "-O2").key("1"),
            job("unit", "other", "c++", "-O2").key("1"),
            job("unit", "text", "g++", "-O2").key("1"),
            job("unit", "text", "c++", "-O1").key("1"),
        ];
        assert!(all.iter().enumerate().all(|(i, k)| !all[..i].contains(k)), "{all:x?}");
        assert_eq!(all[0], job("unit", "text", "c++", "-O2").key("1"));
    }
}
