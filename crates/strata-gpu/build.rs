//! Embeds the kernel sources.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../kernels");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let lines = files.iter().map(|f| {
        let name = f.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
        let path = fs::canonicalize(f).expect("the file was just listed");
        format!("    ({name:?}, include_str!({:?})),\n", path.to_string_lossy())
    });
    let text = format!("&[\n{}]\n", lines.collect::<String>());
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("sources.rs");
    fs::write(out, text).expect("OUT_DIR is writable");
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
