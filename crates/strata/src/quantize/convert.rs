//! Writing the new file, tensor by tensor.

use super::imatrix::Imatrix;
use super::plan::Planned;
use crate::progress::Line;
use bytes::Bytes;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use strata_gguf::{Gguf, GgufWriter, Metadata, TensorStream, WriteError};
use strata_quant::{DType, QuantizeError, SizeError, dequantize, quantize_weighted};
use thiserror::Error;

/// Values converted before their bytes are written, and values that a thread takes at a time.
const BATCH: u64 = 8 << 20;
const SHARE: u64 = 64 << 10;

/// Why a model was not written.
#[derive(Debug, Error)]
pub enum ConvertError {
    #[error("{}: expected another file than the source", file.display())]
    Itself { file: PathBuf },
    #[error("{}: cannot write: {error}", file.display())]
    File { file: PathBuf, error: io::Error },
    #[error("{}: {error}", file.display())]
    Write { file: PathBuf, error: WriteError },
    #[error("tensor '{tensor}', row {row}: {error}")]
    Row { tensor: String, row: u64, error: RowError },
}

/// Why a row was not converted.
#[derive(Debug, Error)]
pub enum RowError {
    #[error(transparent)]
    Decode(#[from] SizeError),
    #[error(transparent)]
    Encode(#[from] QuantizeError),
}

/// A file beside the one it will become; it goes away unless it does.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the planned tensors and `metadata` to `out`: under another name first, then renamed.
///
/// # Errors
/// `out` is a file of the source or cannot be written, or a value is not finite.
pub fn convert(
    gguf: &Gguf,
    metadata: &Metadata,
    plan: &[Planned],
    imatrix: Option<&Imatrix>,
    out: &Path,
    threads: usize,
    bar: &Line,
) -> Result<(), ConvertError> {
    let same = |a: &Path| matches!((fs::canonicalize(a), fs::canonicalize(out)), (Ok(a), Ok(b)) if a == b);
    if gguf.files().any(same) {
        return Err(ConvertError::Itself { file: out.to_owned() });
    }
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part{}", std::process::id()));
    let part = out.with_file_name(name);
    let file_error = |error| ConvertError::File { file: out.to_owned(), error };
    let write_error = |error| ConvertError::Write { file: out.to_owned(), error };
    let mut writer = GgufWriter::new(metadata.clone()).map_err(write_error)?;
    for p in plan {
        writer.tensor(&p.info.name, p.dtype, &p.info.dims).map_err(write_error)?;
    }
    let file = File::create_new(&part).map_err(file_error)?;
    let mut unfinished = Unfinished(Some(part.clone()));
    let mut stream = writer.begin(BufWriter::with_capacity(1 << 20, file)).map_err(write_error)?;
    for p in plan {
        bar.name(&p.info.name);
        tensor(gguf.data(p.info), p, imatrix, threads, bar, &mut stream, &write_error)?;
    }
    let file = stream.finish().map_err(write_error)?.into_inner().map_err(|e| file_error(e.into_error()))?;
    file.sync_all().map_err(file_error)?;
    drop(file);
    fs::rename(&part, out).map_err(file_error)?;
    unfinished.0 = None;
    Ok(())
}

/// Converts and writes a tensor, batch by batch.
fn tensor(
    data: Bytes,
    p: &Planned,
    imatrix: Option<&Imatrix>,
    threads: usize,
    bar: &Line,
    stream: &mut TensorStream<BufWriter<File>>,
    write_error: &impl Fn(WriteError) -> ConvertError,
) -> Result<(), ConvertError> {
    let (from, to, cols) = (p.info.dtype, p.dtype, p.info.cols());
    if from == to {
        for piece in data.chunks(BATCH as usize) {
            stream.write(piece).map_err(write_error)?;
            bar.add(piece.len() as u64);
        }
        return Ok(());
    }
    // the reader and the writer have checked both
    let row_bytes = |d: DType| d.row_bytes(cols as usize).filter(|n| *n > 0);
    let (Some(old), Some(new)) = (row_bytes(from), row_bytes(to)) else { return Ok(()) };
    let batch = (BATCH / cols).max(1) as usize;
    let share = (SHARE / cols).max(1) as usize;
    let mut bytes = Vec::new();
    for (i, rows) in data.chunks(batch * old).enumerate() {
        bytes.resize(rows.len() / old * new, 0);
        let shares = Mutex::new(rows.chunks(share * old).zip(bytes.chunks_mut(share * new)).enumerate());
        let failed = Mutex::new(None::<(u64, RowError)>);
        let work = || {
            let mut values = vec![0.0; cols as usize];
            loop {
                let Some((k, (from_rows, to_rows))) = lock(&shares).next() else { return };
                for (r, (a, b)) in from_rows.chunks_exact(old).zip(to_rows.chunks_exact_mut(new)).enumerate() {
                    let row = (i * batch + k * share + r) as u64;
                    let importance = imatrix.and_then(|m| m.row(p.info, row));
                    let done = dequantize(from, a, &mut values).map_err(RowError::from);
                    let done = done.and_then(|()| quantize_weighted(to, &values, importance, b).map_err(RowError::from));
                    if let Err(error) = done {
                        // the first row of those that fail, whichever thread finds it first
                        let mut failed = lock(&failed);
                        if failed.as_ref().is_none_or(|(first, _)| row < *first) {
                            *failed = Some((row, error));
                        }
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        if let Some((row, error)) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(ConvertError::Row { tensor: p.info.name.clone(), row, error });
        }
        stream.write(&bytes).map_err(write_error)?;
        bar.add(rows.len() as u64);
    }
    Ok(())
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}
