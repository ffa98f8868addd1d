//! Embeds the kernel sources, and images of them compiled here.
//!
//! `STRATA_EMBED_ARCHS`: `none`; `all` (every common architecture; a missing compiler or an error fails the build); a comma list
//! (the same, for these); `auto` (those common ones whose compilers are here; what does not compile is a warning). Unset it is
//! `native`: as `auto`, for the cards of this machine alone. What is not embedded is compiled on first use and cached. Compiling costs
//! about a minute of one core an architecture, in parallel over the cores; unchanged files come from a cache in the build directory.

#[allow(dead_code, reason = "the crate uses more of it")]
#[path = "src/compile/toolchain/mod.rs"]
mod compile;
#[allow(dead_code, reason = "the crate uses more of it")]
#[path = "src/error.rs"]
mod error;
#[allow(dead_code, reason = "the crate uses more of it")]
#[path = "src/registry/mod.rs"]
mod registry;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

/// The sources as files of the checkout; the crate has them embedded.
mod sources {
    use std::sync::OnceLock;

    static SOURCES: OnceLock<Vec<(&'static str, &'static str)>> = OnceLock::new();

    pub fn set(list: Vec<(&'static str, &'static str)>) {
        SOURCES.get_or_init(|| list);
    }

    pub fn all() -> &'static [(&'static str, &'static str)] {
        SOURCES.get().map_or(&[], Vec::as_slice)
    }
}

/// Architecture of the PTX that serves devices newer than the build; `compile::LAST_RESORT` in the crate.
const LAST_RESORT: &str = "compute_75";

fn main() {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../kernels");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={}", root.display());
    for name in ["STRATA_EMBED_ARCHS", "STRATA_NVRTC", "STRATA_CLANG", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut lines = String::new();
    let mut texts = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
        let path = fs::canonicalize(file).expect("the file was just listed");
        lines += &format!("    ({name:?}, include_str!({:?})),\n", path.to_string_lossy());
        let text = fs::read_to_string(file).expect("the file was just listed");
        // The build script is short-lived; the crate's table has static strings.
        texts.push((&*name.leak(), &*text.leak()));
    }
    sources::set(texts);
    fs::write(out.join("sources.rs"), format!("&[\n{lines}]\n")).expect("OUT_DIR is writable");
    let images = embed(&out);
    fs::write(out.join("images.rs"), format!("&[\n{images}]\n")).expect("OUT_DIR is writable");
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the kernels' directory is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| ["cu", "cuh", "cpp"].iter().any(|x| e == *x)) {
            files.push(path);
        }
    }
}

/// Compiles what is asked for; the lines of the table of images.
fn embed(out: &Path) -> String {
    let wish = env::var("STRATA_EMBED_ARCHS").ok().filter(|v| !v.is_empty());
    let wish = wish.unwrap_or_else(|| "native".into());
    let native;
    let everything = || compile::COMMON.iter().copied().chain([LAST_RESORT]);
    let (archs, strict): (Vec<&str>, bool) = match wish.as_str() {
        "none" => return String::new(),
        "native" => {
            native = compile::native::archs();
            (native.iter().map(String::as_str).filter(|a| compile::supports(a)).collect(), false)
        }
        "auto" => (everything().filter(|a| compile::supports(a)).collect(), false),
        "all" => (everything().collect(), true),
        list => (list.split(',').map(str::trim).filter(|a| !a.is_empty()).collect(), true),
    };
    let jobs: Vec<(&str, &str)> = registry::files().into_iter().flat_map(|f| archs.iter().map(move |a| (f, *a))).collect();
    let cache = compile::Cache::at(out.join("cache"));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(file, arch)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = compile::image_in(&cache, file, arch, &[]).map(|image| pack(out, file, arch, &image.bytes));
                    done.lock().expect("no panic holds it").push((file, arch, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic holds it");
    done.sort_by_key(|(file, arch, _)| (*file, *arch));
    let mut lines = String::new();
    for (_, _, result) in done {
        match result {
            Ok(line) => lines += &line,
            Err(error) if strict => panic!("{error}"),
            Err(error) => println!("cargo::warning=not embedded: {}", error.to_string().replace('\n', " | ")),
        }
    }
    lines
}

/// Writes a deflated image; its line of the table.
fn pack(out: &Path, file: &str, arch: &str, bytes: &[u8]) -> String {
    let path = out.join(format!("{}.{arch}.z", file.replace('/', "-")));
    fs::write(&path, miniz_oxide::deflate::compress_to_vec(bytes, 6)).expect("OUT_DIR is writable");
    format!("    ({file:?}, {arch:?}, {}, include_bytes!({:?})),\n", bytes.len(), path.to_string_lossy())
}
