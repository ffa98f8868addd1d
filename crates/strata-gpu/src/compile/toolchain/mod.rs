//! Compilers: NVRTC for `sm_*`, clang for `gfx*`, and the cache of what they made. Shared with `build.rs`.

mod cache;
mod clang;
#[allow(dead_code, reason = "the build script calls the rest")]
pub mod native;
mod nvrtc;
pub(crate) mod reach;

pub use cache::Cache;

use crate::error::{GpuError, Result};

/// The architectures that builds embed and tests compile.
pub const COMMON: &[&str] = &[
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_89",
    "sm_90a",
    "sm_100",
    "sm_120",
    "gfx1030",
    "gfx1100",
    "gfx1151",
    "gfx1200",
    "gfx1201",
    "gfx11-generic",
    "gfx12-generic",
];

/// Compiled code of one kernel file: a cubin, PTX or an AMD code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub bytes: Vec<u8>,
    /// What the compiler said: warnings, and from NVIDIA registers and spills of each kernel. Empty for embedded images.
    pub log: String,
    /// The architecture it was compiled for.
    pub arch: String,
}

/// Whose compiler an architecture needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Cuda,
    Hip,
}

impl Vendor {
    /// Of an architecture name; `None` for what is none.
    pub fn of(arch: &str) -> Option<Vendor> {
        let plain = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if sm_number(arch).is_some() {
            Some(Vendor::Cuda)
        } else if arch.strip_prefix("gfx").is_some_and(plain) {
            Some(Vendor::Hip)
        } else {
            None
        }
    }
}

/// 90 for `sm_90a`, 75 for `compute_75`.
pub fn sm_number(arch: &str) -> Option<u32> {
    let digits = arch.strip_prefix("sm_").or_else(|| arch.strip_prefix("compute_"))?;
    digits.strip_suffix(['a', 'f']).unwrap_or(digits).parse().ok().filter(|n| (10..1000).contains(n))
}

/// Compiles a kernel file, or takes it from the user's cache. `defines` are `NAME` or `NAME=VALUE`.
pub fn image(file: &str, arch: &str, defines: &[&str]) -> Result<Image> {
    image_in(&Cache::of_user(), file, arch, defines)
}

/// The same with a cache of one's own.
pub fn image_in(cache: &Cache, file: &str, arch: &str, defines: &[&str]) -> Result<Image> {
    let sources = reach::reachable(file)?;
    let vendor = vendor(file, arch)?;
    let options = match vendor {
        Vendor::Cuda => nvrtc::options(arch, defines),
        Vendor::Hip => clang::options(arch, defines),
    };
    let mut key = format!("{}\n{}\n{file}\n", compiler(arch)?, options.join(" "));
    for (path, text) in &sources {
        key += &format!("\n== {path} {}\n{text}", text.len());
    }
    if let Some((bytes, log)) = cache.get(&key) {
        return Ok(Image { bytes, log, arch: arch.to_string() });
    }
    let (bytes, log) = match vendor {
        Vendor::Cuda => nvrtc::open()?.compile(file, arch, &sources, &options)?,
        Vendor::Hip => clang::open()?.compile(file, arch, &sources, &options)?,
    };
    cache.put(&key, &bytes, &log);
    Ok(Image { bytes, log, arch: arch.to_string() })
}

fn vendor(file: &str, arch: &str) -> Result<Vendor> {
    let log = || format!("{arch:?} is no architecture (sm_90a, gfx1201, gfx12-generic, ...)");
    Vendor::of(arch).ok_or_else(|| GpuError::Compile { file: file.to_string(), arch: arch.to_string(), log: log() })
}

/// Name and version of the compiler for an architecture, as tables and the cache record it.
pub fn compiler(arch: &str) -> Result<String> {
    match vendor("(any)", arch)? {
        Vendor::Cuda => Ok(nvrtc::open()?.version()),
        Vendor::Hip => Ok(clang::open()?.version.clone()),
    }
}

/// Where NVRTC lies; a bare name when the system found it.
pub fn nvrtc_path() -> Result<&'static std::path::Path> {
    nvrtc::open().map(|n| n.path.as_path())
}

/// Whether the compiler that is here knows the architecture.
pub fn supports(arch: &str) -> bool {
    match Vendor::of(arch) {
        Some(Vendor::Cuda) => nvrtc::open().is_ok_and(|n| n.supports(arch)),
        Some(Vendor::Hip) => clang::open().is_ok(),
        None => false,
    }
}

/// Version and place of NVRTC.
pub fn nvrtc_version() -> Result<String> {
    nvrtc::open().map(|n| format!("{} ({})", n.version(), n.path.display()))
}

/// Version and place of clang.
pub fn clang_version() -> Result<String> {
    clang::open().map(|c| format!("{} ({})", c.version, c.program))
}

/// The program of LLVM that belongs to the clang in use (`llvm-objdump`).
pub fn llvm_tool(name: &str) -> Result<String> {
    Ok(clang::open()?.sibling(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures() {
        assert_eq!(Vendor::of("sm_90a"), Some(Vendor::Cuda));
        assert_eq!(Vendor::of("compute_75"), Some(Vendor::Cuda));
        assert_eq!(Vendor::of("gfx12-generic"), Some(Vendor::Hip));
        for wrong in ["", "sm_", "sm_9000", "sm_90aa", "gfx", "gfx12 -x", "shim-cuda"] {
            assert_eq!(Vendor::of(wrong), None, "{wrong}");
        }
        assert_eq!(sm_number("sm_90a"), Some(90));
    }
}
