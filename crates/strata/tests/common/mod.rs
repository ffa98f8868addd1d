//! Runs the program, and makes model files to run it on.
#![allow(dead_code, reason = "each test binary uses a part")]

use serde_json::Value as Json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use strata_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, Value};

pub const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/refmodel-q8_0.gguf");

/// The program without the caller's switches in its environment.
pub fn strata(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_strata"));
    c.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRATA_")) {
        c.env_remove(name);
    }
    c
}

pub fn output(args: &[&str]) -> Output {
    strata(args).output().expect("the program starts")
}

/// Standard output of a run that must succeed.
pub fn text(args: &[&str]) -> String {
    let out = output(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

pub fn json(args: &[&str]) -> Json {
    serde_json::from_str(&text(args)).expect("one JSON value")
}

/// `run --json` with these arguments.
pub fn run(args: &[&str]) -> Json {
    json(&[&["run", "--json"], args].concat())
}

/// A command that must fail: exit code, nothing on standard output, one line on standard error, which is returned.
pub fn fails(command: &mut Command, code: i32) -> String {
    let out = command.output().expect("the program starts");
    let stderr = String::from_utf8(out.stderr).expect("UTF-8");
    assert_eq!(out.status.code(), Some(code), "{command:?}: {stderr}");
    assert!(out.stdout.is_empty(), "{command:?} printed {:?}", String::from_utf8_lossy(&out.stdout));
    stderr.strip_prefix("error: ").unwrap_or_else(|| panic!("{command:?}: {stderr}")).trim_end().to_owned()
}

/// A folder of its own that goes away with the value.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("strata-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Dir(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.file(name);
        std::fs::write(&path, bytes).expect("the file can be written");
        path.display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes what `keep` and `key` leave of the reference model, `key` giving each key's value or dropping it.
pub fn rewrite(
    to: &Path,
    keep: impl Fn(&TensorInfo) -> bool,
    key: impl Fn(&str, &Value) -> Option<Value>,
    change: impl Fn(&str, &mut Vec<u8>),
) -> String {
    let gguf = Gguf::open(MODEL).expect("the reference model is in the repository");
    let mut m = Metadata::default();
    for (k, v) in gguf.metadata().iter() {
        if let Some(v) = key(k, v) {
            m.insert(k, v);
        }
    }
    if let Some(v) = key("qwen4exp.nextn_shared_target_tensors", &Value::Bool(false)).filter(|v| *v == Value::Bool(true)) {
        m.insert("qwen4exp.nextn_shared_target_tensors", v);
    }
    let mut writer = GgufWriter::new(m).expect("good metadata");
    let kept: Vec<&TensorInfo> = gguf.tensors().filter(|t| keep(t)).collect();
    for t in &kept {
        writer.tensor(&t.name, t.dtype, &t.dims).expect("a good tensor");
    }
    let out = BufWriter::new(File::create(to).expect("the file can be made"));
    let mut stream = writer.begin(out).expect("the header can be written");
    for t in kept {
        let mut bytes = gguf.data(t).to_vec();
        change(&t.name, &mut bytes);
        stream.write(&bytes).expect("the tensor can be written");
    }
    stream.finish().expect("whole").flush().expect("flushed");
    to.display().to_string()
}

const MTP_BLOCK: &str = "blk.8.";

/// The reference model without its MTP block.
pub fn trunk(dir: &Dir) -> String {
    let key = |k: &str, v: &Value| match k {
        "qwen4exp.nextn_predict_layers" => None,
        "qwen4exp.block_count" => Some(8u32.into()),
        "qwen4exp.attention.compress_ratios" => Some(vec![0i32, 0, 0, 4, 0, 0, 0, 4].into()),
        _ => Some(v.clone()),
    };
    rewrite(&dir.file("trunk.gguf"), |t| !t.name.starts_with(MTP_BLOCK), key, |_, _| ())
}

/// The MTP block alone, which shares the trunk's embedding and head.
pub fn shared_mtp(dir: &Dir) -> String {
    let key = |k: &str, v: &Value| match k {
        "qwen4exp.nextn_shared_target_tensors" => Some(true.into()),
        "qwen4exp.embedding_length_per_layer_input" => None,
        _ => (!k.starts_with("qwen4exp.ple.")).then(|| v.clone()),
    };
    rewrite(&dir.file("mtp.gguf"), |t| t.name.starts_with(MTP_BLOCK), key, |_, _| ())
}
