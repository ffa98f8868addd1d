//! `strata inspect`: metadata and tensors of a GGUF file.

use crate::cli::InspectArgs;
use crate::error::CliError;
use crate::load;
use crate::output;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use strata_gguf::{Array, Gguf, TensorInfo, Value};

/// Elements of an array that are printed without `--full`, and those shown of a longer one.
const LONG_ARRAY: usize = 64;
const SHOWN: usize = 8;
/// Tensors that are listed without `--tensors`.
const LARGEST: usize = 10;

/// Prints what the file holds.
///
/// # Errors
/// It is no well-formed GGUF file.
pub fn run(args: &InspectArgs) -> Result<ExitCode, CliError> {
    let gguf = load::open(args.file.as_deref())?;
    if args.json {
        output::print_json(&as_json(&gguf, args.full))?
    } else {
        output::print(&as_text(&gguf, args))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Count, values and bytes of each tensor type, the largest first.
fn by_type(gguf: &Gguf) -> Vec<(&'static str, u64, u64, u64)> {
    let mut all: BTreeMap<&'static str, (u64, u64, u64)> = BTreeMap::new();
    for t in gguf.tensors() {
        let e = all.entry(t.dtype.name()).or_default();
        *e = (e.0 + 1, e.1.saturating_add(values(t)), e.2.saturating_add(t.byte_len));
    }
    let mut rows: Vec<_> = all.into_iter().map(|(n, (count, values, bytes))| (n, count, values, bytes)).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.3));
    rows
}

fn values(t: &TensorInfo) -> u64 {
    t.cols().saturating_mul(t.rows())
}

fn as_json(gguf: &Gguf, full: bool) -> Json {
    let value = |v: &Value| json!({"type": v.value_type().name(), "value": value_json(v, full)});
    let tensor = |t: &TensorInfo| json!({"name": t.name, "type": t.dtype.name(), "dims": t.dims, "bytes": t.byte_len, "file": t.shard, "offset": t.offset});
    json!({
        "file": load::name_of(gguf),
        "files": gguf.files().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "version": gguf.version(),
        "bytes": gguf.total_bytes(),
        "metadata": gguf.metadata().iter().map(|(k, v)| (k.to_owned(), value(v))).collect::<serde_json::Map<_, _>>(),
        "types": by_type(gguf).iter().map(|(n, count, values, bytes)| json!({"type": n, "tensors": count, "values": values, "bytes": bytes})).collect::<Vec<_>>(),
        "tensors": gguf.tensors().map(tensor).collect::<Vec<_>>(),
    })
}

/// A metadata value; floats that JSON cannot hold become strings, long arrays their beginning and length.
fn value_json(v: &Value, full: bool) -> Json {
    match v {
        Value::U8(x) => json!(x),
        Value::I8(x) => json!(x),
        Value::U16(x) => json!(x),
        Value::I16(x) => json!(x),
        Value::U32(x) => json!(x),
        Value::I32(x) => json!(x),
        Value::U64(x) => json!(x),
        Value::I64(x) => json!(x),
        Value::F32(x) => float(f64::from(*x), x.to_string()),
        Value::F64(x) => float(*x, x.to_string()),
        Value::Bool(x) => json!(x),
        Value::String(x) => json!(x),
        Value::Array(a) if a.len() > LONG_ARRAY && !full => {
            json!({"length": a.len(), "element": a.element_type().name(), "first": elements(a, SHOWN, full)})
        }
        Value::Array(a) => Json::Array(elements(a, usize::MAX, full)),
    }
}

fn float(x: f64, text: String) -> Json {
    if x.is_finite() { json!(text.parse().unwrap_or(x)) } else { json!(text) }
}

fn elements(a: &Array, n: usize, full: bool) -> Vec<Json> {
    fn some<T: Copy + Into<Value>>(v: &[T], n: usize) -> Vec<Json> {
        v.iter().take(n).map(|x| value_json(&(*x).into(), true)).collect()
    }
    match a {
        Array::U8(v) => some(v, n),
        Array::I8(v) => some(v, n),
        Array::U16(v) => some(v, n),
        Array::I16(v) => some(v, n),
        Array::U32(v) => some(v, n),
        Array::I32(v) => some(v, n),
        Array::U64(v) => some(v, n),
        Array::I64(v) => some(v, n),
        Array::F32(v) => some(v, n),
        Array::F64(v) => some(v, n),
        Array::Bool(v) => some(v, n),
        Array::String(v) => v.iter().take(n).map(|s| json!(s)).collect(),
        Array::Array(v) => v.iter().take(n).map(|a| value_json(&Value::Array(a.clone()), full)).collect(),
    }
}

fn as_text(gguf: &Gguf, args: &InspectArgs) -> String {
    let mut s = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // writing to a string cannot fail
        let _ = s.write_fmt(text);
        s.push('\n');
    };
    line(format_args!("{}", load::name_of(gguf)));
    if gguf.files().len() > 1 {
        gguf.files().for_each(|p| line(format_args!("  file {}", p.display())));
    }
    let (keys, tensors) = (gguf.metadata().len(), gguf.tensors().len());
    line(format_args!("  GGUF version {}, {}, {keys} keys, {tensors} tensors", gguf.version(), output::bytes(gguf.total_bytes())));
    line(format_args!("\nmetadata"));
    for (key, value) in gguf.metadata().iter() {
        match value {
            Value::Array(a) if a.len() <= LONG_ARRAY || args.full => {
                let all = Json::Array(elements(a, usize::MAX, args.full));
                line(format_args!("  {key} = {all}"));
            }
            Value::Array(a) => {
                let first: Vec<String> = elements(a, SHOWN, false).iter().map(Json::to_string).collect();
                line(format_args!("  {key} = [{}, ...] ({value})", first.join(",")));
            }
            Value::String(text) if args.full => line(format_args!("  {key} = {text:?}")),
            _ => line(format_args!("  {key} = {value}")),
        }
    }
    line(format_args!("\n{:<8} {:>8} {:>16} {:>12}", "type", "tensors", "values", "size"));
    for (name, count, values, bytes) in by_type(gguf) {
        line(format_args!("{name:<8} {count:>8} {values:>16} {:>12}", output::bytes(bytes)));
    }
    let mut list: Vec<&TensorInfo> = gguf.tensors().collect();
    if !args.tensors && list.len() > LARGEST {
        list.sort_by_key(|t| std::cmp::Reverse(t.byte_len));
        list.truncate(LARGEST);
        line(format_args!("\nthe {LARGEST} largest tensors (--tensors lists all)"));
    } else {
        line(format_args!("\ntensors"));
    }
    for t in list {
        let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
        line(format_args!("  {:<44} {:<7} {:>22} {:>12}", t.name, t.dtype.name(), dims.join(" x "), output::bytes(t.byte_len)));
    }
    s
}
