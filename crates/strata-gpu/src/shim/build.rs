//! Compiles a kernel file for the CPU, with a disk cache.

use super::ShimSide;
use crate::compile::toolchain::reach::{Source, reachable};
use crate::error::{GpuError, Result};
use crate::registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs};

/// What every object holds beside its kernels.
const RUNTIME: &str = "side/cpu_runtime.cpp";

/// Flags of every build. Contraction off: FMAs are written. AVX2 level for hardware FMA and half conversion. `-O1`: suites of CI's
/// sizes compile much longer than they run, and `-O2` makes the former a third longer and the latter a tenth shorter.
const FLAGS: [&str; 9] =
    ["-std=c++17", "-O1", "-g1", "-march=x86-64-v3", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-DSTRATA_SHIM=1"];

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
    let mut flags: Vec<String> = FLAGS.iter().copied().map(String::from).collect();
    flags.extend(side.defines().iter().map(|d| format!("-D{d}")));
    if let Some(s) = sanitizers() {
        // checks multiply the code: less optimised it compiles in two thirds of the time
        flags.extend([format!("-fsanitize={s}"), "-fno-sanitize-recover=all".into(), "-O1".into()]);
    }
    let dir = env::temp_dir().join(format!("strata-shim-{}", user()));
    let runtime = Job { unit: String::new(), sources: reachable(RUNTIME)?, command: command.clone(), flags: flags.clone() };
    let mut sources = reachable(file)?;
    flags.extend(defines.iter().filter(|d| names(&sources, d)).map(|d| format!("-D{d}")));
    sources.retain(|s| !runtime.sources.contains(s));
    let job = Job { unit, sources, command, flags };
    let stem = file.replace(['/', '.'], "_");
    let object = dir.join(format!("{stem}-{}-{:016x}.so", side.arch(), job.key(&format!("{:x} {version}", runtime.key(&version)))));
    let turn = turn(&object);
    let _held = turn.lock().unwrap_or_else(PoisonError::into_inner);
    if !object.exists()
        && let Some(log) = job.object(&dir, &runtime.prepare(&dir, &version)?, &object)?
    {
        return Err(GpuError::Compile { file: file.into(), arch: side.arch().into(), log });
    }
    Ok(object.into_os_string().into_encoded_bytes())
}

/// Whether a source has the name that a macro (`NAME` or `NAME=value`) defines. One that none has changes no object, so the object
/// without it serves.
fn names(sources: &[Source], define: &str) -> bool {
    let name = define.split_once('=').map_or(define, |(name, _)| name);
    sources.iter().any(|(_, text)| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name))
}

/// The lock of an object: of threads that want the same one, one builds it.
fn turn(object: &Path) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    TURNS.lock().unwrap_or_else(PoisonError::into_inner).entry(object.to_owned()).or_default().clone()
}

/// What an object is made of, or what all objects of a side share.
#[derive(Clone)]
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

    /// A new folder with the sources, so that processes that build the same do not meet.
    fn folder(&self, dir: &Path) -> Result<PathBuf> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let work = dir.join(format!("build-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
        for (path, text) in &self.sources {
            let at = work.join(path);
            fs::create_dir_all(at.parent().unwrap_or(&work)).and_then(|()| fs::write(&at, text)).map_err(io(&at))?;
        }
        Ok(work)
    }

    /// Runs the compiler, reading sources from `folders`.
    fn compile(&self, folders: &[&Path], input: &Path, output: &Path) -> Result<Output> {
        let mut command = Command::new(&self.command);
        command.args(&self.flags).args(folders.iter().flat_map(|f| [Path::new("-I"), *f]));
        // the runtime of a sanitizer that is preloaded is for this process, not for the compiler
        command.env_remove("LD_PRELOAD");
        command.arg(input).arg("-o").arg(output).output().map_err(io(Path::new(&self.command)))
    }

    /// Makes the object of this unit. What the compiler says if it fails.
    fn object(&self, dir: &Path, runtime: &Path, object: &Path) -> Result<Option<String>> {
        let work = self.folder(dir)?;
        let (main, made) = (work.join("unit.cpp"), work.join("unit.so"));
        fs::write(&main, &self.unit).map_err(io(&main))?;
        let out = self.compile(&[runtime, &work], &main, &made)?;
        let log = if out.status.success() {
            fs::rename(&made, object).map_err(io(object))?;
            None
        } else {
            Some(String::from_utf8_lossy(&out.stderr).into_owned())
        };
        let _ = fs::remove_dir_all(&work);
        Ok(log)
    }

    /// The folder of the runtime's sources and, for GCC, their precompiled form: to read them costs a third of an average object's
    /// time. Other compilers pass over it.
    fn prepare(&self, dir: &Path, version: &str) -> Result<PathBuf> {
        let folder = dir.join(format!("runtime-{:016x}", self.key(version)));
        let turn = turn(&folder);
        let _held = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !folder.exists() {
            let work = self.folder(dir)?;
            let source = work.join(RUNTIME);
            let header = Job { flags: [&self.flags[..], &["-x".into(), "c++-header".into()]].concat(), ..self.clone() };
            // what is wrong with the sources, an object's own log tells
            header.compile(&[&work], &source, &source.with_extension("cpp.gch"))?;
            // another process may have been first
            if let Err(e) = fs::rename(&work, &folder)
                && !folder.exists()
            {
                return Err(io(&folder)(e));
            }
            let _ = fs::remove_dir_all(&work);
        }
        Ok(folder)
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> GpuError {
    let path = path.display().to_string();
    move |source| GpuError::Io { path, source }
}

fn user() -> String {
    env::var("USER").or_else(|_| env::var("USERNAME")).unwrap_or_else(|_| "any".into()).replace(|c: char| !c.is_alphanumeric(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_does_not_depend_on_other_kernels() {
        let paths = |file| reachable(file).unwrap().into_iter().map(|s| s.0).collect::<Vec<_>>();
        let merge = paths("attention/merge.cu");
        assert!(
            merge.contains(&"attention/merge.cu") && !merge.iter().any(|p| p.starts_with("products/") || p.starts_with("selection/")),
            "{merge:?}"
        );
        let runtime = paths(RUNTIME);
        assert!(runtime.contains(&"side/cpu.cuh") && runtime.iter().all(|p| p.starts_with("side/")), "{runtime:?}");
    }

    #[test]
    fn macros_that_no_source_names_are_found() {
        let sources = [("a.cu", "#if BROKEN_MERGE == 1\nint other;\n"), ("b.cuh", "#ifdef(LAST)")];
        for (define, named) in [
            ("BROKEN_MERGE", true),
            ("BROKEN_MERGE=1", true),
            ("LAST=0", true),
            ("BROKEN", false),
            ("MERGE", false),
            ("BROKEN_MERGE_2", false),
        ] {
            assert_eq!(names(&sources, define), named, "{define}");
        }
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
