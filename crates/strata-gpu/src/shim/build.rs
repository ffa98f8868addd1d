//! Compiles a kernel file for the CPU, with a disk cache.

use super::ShimSide;
use crate::error::{GpuError, Result};
use crate::{registry, sources};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

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
    let mut unit = String::from("#include \"side/cpu_runtime.cpp\"\n");
    let _ = writeln!(unit, "#include \"{file}\"");
    for k in registry::all().filter(|k| k.file == file && k.runs_on(side.arch())) {
        let _ = writeln!(unit, "SHIM_EXPORT({}, \"{}\")", k.name, k.args);
    }
    let mut flags: Vec<String> = FLAGS.map(String::from).to_vec();
    flags.extend(side.defines().iter().chain(defines).map(|d| format!("-D{d}")));
    if let Some(s) = sanitizers() {
        // checks multiply the code: less optimised it compiles in two thirds of the time
        flags.extend([format!("-fsanitize={s}"), "-fno-sanitize-recover=all".into(), "-O1".into()]);
    }
    let key = key(&[&unit, &flags.join(" "), &command, &version]);
    let dir = env::temp_dir().join(format!("strata-shim-{}", user()));
    let stem = file.replace(['/', '.'], "_");
    let object = dir.join(format!("{stem}-{}-{key:016x}.so", side.arch()));
    if !object.exists() {
        build(&dir, &unit, &command, &flags, &object, file, side)?;
    }
    Ok(object.into_os_string().into_encoded_bytes())
}

fn build(dir: &Path, unit: &str, command: &str, flags: &[String], object: &Path, file: &str, side: ShimSide) -> Result<()> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |source| GpuError::Io { path, source }
    };
    // a folder of its own, so that processes and threads that build the same object do not meet
    static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let work = dir.join(format!("build-{}-{}", std::process::id(), SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    for (path, text) in sources::all() {
        let at: PathBuf = work.join(path);
        fs::create_dir_all(at.parent().unwrap_or(&work)).map_err(io(&at))?;
        fs::write(&at, text).map_err(io(&at))?;
    }
    let main = work.join("unit.cpp");
    fs::write(&main, unit).map_err(io(&main))?;
    let made = work.join("unit.so");
    let mut compile = Command::new(command);
    compile.args(flags).arg("-I").arg(&work).arg(&main).arg("-o").arg(&made);
    // the runtime of a sanitizer that is preloaded is for this process, not for the compiler
    compile.env_remove("LD_PRELOAD");
    let out = compile.output().map_err(io(Path::new(command)))?;
    if !out.status.success() {
        let log = String::from_utf8_lossy(&out.stderr).into_owned();
        let _ = fs::remove_dir_all(&work);
        return Err(GpuError::Compile { file: file.into(), arch: side.arch().into(), log });
    }
    fs::rename(&made, object).map_err(io(object))?;
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

/// FNV-1a over the parts and every source: what the object depends on.
fn key(parts: &[&str]) -> u64 {
    let texts = sources::all().iter().flat_map(|(p, t)| [*p, *t]);
    let bytes = parts.iter().copied().chain(texts).flat_map(|s| s.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn user() -> String {
    env::var("USER").or_else(|_| env::var("USERNAME")).unwrap_or_else(|_| "any".into()).replace(|c: char| !c.is_alphanumeric(), "_")
}
