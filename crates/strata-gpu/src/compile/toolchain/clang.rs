//! clang for AMD: kernels need neither ROCm nor its headers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use super::reach::Source;
use crate::error::{GpuError, Result};

/// The oldest release that is used: LLVM up to 20 may sink lane exchanges below a branch.
const OLDEST: u32 = 22;

/// A clang of a release that will do.
pub struct Clang {
    pub program: String,
    /// `clang 22.1.0`.
    pub version: String,
}

/// The clang to use: `STRATA_CLANG`, else `clang-22`, newer ones, `clang`.
pub fn open() -> Result<&'static Clang> {
    static FOUND: OnceLock<std::result::Result<Clang, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(|tried| GpuError::Missing {
        what: "clang for AMD kernels",
        tried: tried.clone(),
        hint: format!("install clang-{OLDEST} and lld-{OLDEST} or newer, or set STRATA_CLANG"),
    })
}

fn find() -> std::result::Result<Clang, String> {
    let names: Vec<String> = match env::var("STRATA_CLANG") {
        Ok(name) if !name.is_empty() => vec![name],
        _ => (OLDEST..OLDEST + 8).map(|n| format!("clang-{n}")).chain(["clang".into()]).collect(),
    };
    let mut tried = Vec::new();
    for program in names {
        let Ok(output) = Command::new(&program).arg("--version").output() else {
            tried.push(program);
            continue;
        };
        match version(&String::from_utf8_lossy(&output.stdout)) {
            Some((major, version)) if major >= OLDEST => return Ok(Clang { program, version: format!("clang {version}") }),
            Some((_, version)) => tried.push(format!("{program}, which is {version}")),
            None => tried.push(format!("{program}, which tells no version")),
        }
    }
    Err(tried.join(", "))
}

/// Major and whole version from the text of `--version`.
fn version(text: &str) -> Option<(u32, &str)> {
    let rest = text.lines().next()?.split_once("clang version ")?.1;
    let whole = rest.split([' ', '+', '-', '(']).next()?;
    Some((whole.split('.').next()?.parse().ok()?, whole))
}

pub fn options(arch: &str, defines: &[&str]) -> Vec<String> {
    // Code for a family of devices needs the newer code object.
    let object = if arch.ends_with("-generic") { 6 } else { 5 };
    let mut options: Vec<String> =
        ["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3", "-std=c++17", "-ffp-contract=off", "--no-gpu-bundle-output"]
            .map(String::from)
            .to_vec();
    options.push(format!("--offload-arch={arch}"));
    options.push(format!("-mcode-object-version={object}"));
    options.extend(defines.iter().map(|d| format!("-D{d}")));
    options
}

impl Clang {
    /// The program of the same LLVM: beside clang, with clang's version in its name.
    pub fn sibling(&self, name: &str) -> String {
        let path = Path::new(&self.program);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{name}{}", file.strip_prefix("clang").unwrap_or_default())).to_string_lossy().into_owned()
    }

    /// Code object and warnings.
    pub fn compile(&self, file: &str, arch: &str, sources: &[Source], options: &[String]) -> Result<(Vec<u8>, String)> {
        let work = WorkDir::new(sources)?;
        // Relative paths from the working directory: messages name files as the sources do.
        let output = Command::new(&self.program)
            .current_dir(&work.0)
            .args(options)
            .args(["-I", ".", "-o", "image.hsaco", file])
            .output()
            .map_err(|source| GpuError::Io { path: self.program.clone(), source })?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(GpuError::Compile { file: file.to_string(), arch: arch.to_string(), log });
        }
        let path = work.0.join("image.hsaco");
        let bytes = fs::read(&path).map_err(|source| GpuError::Io { path: path.display().to_string(), source })?;
        Ok((bytes, log))
    }
}

/// A temporary directory with the sources written out.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new(sources: &[Source]) -> Result<WorkDir> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("strata-clang-{}-{}", process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let work = WorkDir(env::temp_dir().join(name));
        for (path, text) in sources {
            let path = work.0.join(path);
            let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            written.map_err(|source| GpuError::Io { path: path.display().to_string(), source })?;
        }
        Ok(work)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // A directory that stays behind in the temporary directory harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("Debian clang version 22.1.4 (1~deb12u1)\nTarget: x"), Some((22, "22.1.4")));
        assert_eq!(version("Ubuntu clang version 23.0.0++2026-1~exp1"), Some((23, "23.0.0")));
        assert_eq!(version("gcc (Debian) 12"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn siblings() {
        let clang = |program: &str| Clang { program: program.into(), version: String::new() };
        assert_eq!(clang("clang-22").sibling("llvm-objdump"), "llvm-objdump-22");
        assert_eq!(clang("/opt/llvm/bin/clang").sibling("llvm-objdump"), "/opt/llvm/bin/llvm-objdump");
    }
}
