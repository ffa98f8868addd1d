//! `strata quantize`: a model with its weights in another format.

mod convert;
mod imatrix;
mod plan;

pub use convert::ConvertError;
pub use imatrix::ImatrixError;

use crate::cli::QuantizeArgs;
use crate::error::CliError;
use crate::{output, progress, settings};
use imatrix::Imatrix;
use plan::{Keep, Planned};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use strata_gguf::{Gguf, Metadata, Value};
use strata_quant::{DType, can_encode};

/// Writes OUT, or with `--dry-run` only the table.
///
/// # Errors
/// The command line names no format that can be written, a file cannot be read or written, or a weight is not finite.
pub fn run(args: &QuantizeArgs) -> Result<ExitCode, CliError> {
    let target = plan::writable(&args.dtype)?;
    let keeps: Vec<Keep> = args.keep.iter().map(|k| Keep::parse(k)).collect::<Result<_, _>>()?;
    let gguf = Gguf::open(&args.input)?;
    let imatrix = args.imatrix.as_deref().map(Imatrix::load).transpose()?;
    let plan: Vec<Planned> = gguf.tensors().map(|t| plan::plan(t, target, &keeps)).collect();
    if let Some(imatrix) = &imatrix {
        imatrix.check(plan.iter().map(|p| p.info))?;
    }
    if !args.dry_run {
        let threads = args.threads.unwrap_or_else(settings::default_threads);
        let bar = progress::converting(plan.iter().map(|p| p.info.byte_len).sum());
        convert::convert(&gguf, &metadata(&gguf, target, imatrix.as_ref()), &plan, imatrix.as_ref(), &args.output, threads, &bar)?;
    }
    output::print(&summary(&plan))?;
    Ok(ExitCode::SUCCESS)
}

/// The keys of the new file: those of the old, but for shards and the type of the weights.
fn metadata(gguf: &Gguf, target: DType, imatrix: Option<&Imatrix>) -> Metadata {
    let mut m = Metadata::default();
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
        m.insert(key, value.clone());
    }
    m.insert("general.file_type", plan::file_type(target));
    m.insert("general.quantization_version", 2u32);
    if let Some(imatrix) = imatrix {
        m.insert("quantize.imatrix.file", imatrix.name.as_str());
        m.insert("quantize.imatrix.entries_count", imatrix.len() as u32);
        if let Some(dataset) = &imatrix.dataset {
            m.insert("quantize.imatrix.dataset", Value::String(dataset.clone()));
        }
        if let Some(chunks) = imatrix.chunks {
            m.insert("quantize.imatrix.chunks_count", chunks);
        }
    }
    m
}

/// Tensors, values, bytes and bits a value of each format, the largest first, then of all.
fn summary(plan: &[Planned]) -> String {
    let mut by_type: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for p in plan {
        let e = by_type.entry(p.dtype.name()).or_default();
        *e = (e.0 + 1, e.1 + p.values(), e.2 + p.byte_len());
    }
    let mut rows: Vec<_> = by_type.into_iter().collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.1.2));
    let sum = |f: fn(&(u64, u64, u64)) -> u64| rows.iter().map(|(_, r)| f(r)).sum::<u64>();
    let all = (sum(|r| r.0), sum(|r| r.1), sum(|r| r.2));
    let mut text = format!("{:<8} {:>8} {:>16} {:>12} {:>12}\n", "type", "tensors", "values", "size", "bits a value");
    for (name, (tensors, values, bytes)) in rows.into_iter().chain([("all", all)]) {
        let bits = bytes as f64 * 8.0 / (values as f64).max(1.0);
        let _ = writeln!(text, "{name:<8} {tensors:>8} {values:>16} {:>12} {bits:>12.3}", output::bytes(bytes));
    }
    let narrow: Vec<&Planned> = plan.iter().filter(|p| p.wanted.is_some()).collect();
    if let Some(first) = narrow.first() {
        let _ = writeln!(
            text,
            "{} tensors have rows that the format wanted does not divide, for example {}: {} values, {} instead of {}",
            narrow.len(),
            first.info.name,
            first.info.cols(),
            first.dtype,
            first.wanted.unwrap_or(first.dtype)
        );
    }
    text
}

/// The formats that can be written, for messages.
fn writable_names() -> String {
    DType::all().filter(|d| can_encode(*d)).map(DType::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod testing {
    use strata_gguf::{Gguf, GgufWriter, Metadata};
    use strata_quant::DType;

    /// A file of one F32 tensor of zeros.
    pub fn file_of(name: &str, dims: &[u64]) -> Gguf {
        let mut w = GgufWriter::new(Metadata::default()).unwrap();
        w.tensor(name, DType::F32, dims).unwrap();
        let mut out = w.begin(Vec::new()).unwrap();
        out.write(&vec![0; 4 * dims.iter().product::<u64>() as usize]).unwrap();
        Gguf::from_bytes(out.finish().unwrap()).unwrap()
    }
}
