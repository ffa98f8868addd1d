//! Writes GGUF files, version 3: first the header of all tensors, then their bytes in one pass.

use std::collections::HashSet;
use std::io::{self, Write};

use strata_quant::DType;
use thiserror::Error;

use crate::layout::{align_up, tensor_bytes};
use crate::{ALIGNMENT_KEY, Array, DEFAULT_ALIGNMENT, ErrorKind, MAGIC, MAX_DIMS, Metadata, Value};

/// Version that is written.
const VERSION: u32 = 3;

/// What can go wrong in writing a file.
#[derive(Debug, Error)]
pub enum WriteError {
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    #[error("key 'general.alignment': expected a power of two, found {0}")]
    Alignment(u32),
    #[error("tensor '{tensor}' is declared twice, expected once")]
    DuplicateTensor { tensor: String },
    #[error("{0}")]
    Shape(#[from] Box<ErrorKind>),
    #[error("tensor '{tensor}': expected {expected} bytes, found {found}")]
    Length { tensor: String, expected: u64, found: u64 },
    #[error("expected no bytes after the last tensor, found {found}")]
    Surplus { found: u64 },
}

/// A declared tensor.
struct Planned {
    name: String,
    dtype: DType,
    dims: Vec<u64>,
    byte_len: u64,
}

/// The header of a file to be: keys and tensors. [`GgufWriter::begin`] writes it and takes the tensors' bytes.
pub struct GgufWriter {
    metadata: Metadata,
    alignment: u64,
    tensors: Vec<Planned>,
    names: HashSet<String>,
}

impl GgufWriter {
    /// A file with these keys. The alignment is that of `general.alignment`, or 32.
    ///
    /// # Errors
    /// `general.alignment` is no power of two.
    pub fn new(metadata: Metadata) -> Result<Self, WriteError> {
        let alignment = match metadata.get_opt::<u32>(ALIGNMENT_KEY).map_err(|e| e.kind)? {
            None => DEFAULT_ALIGNMENT,
            Some(n) if n.is_power_of_two() => n.into(),
            Some(n) => return Err(WriteError::Alignment(n)),
        };
        Ok(Self { metadata, alignment, tensors: Vec::new(), names: HashSet::new() })
    }

    /// Declares the next tensor: sizes fastest dimension first.
    ///
    /// # Errors
    /// The name is taken, or the shape is not one of whole blocks of a size that fits 64 bits.
    pub fn tensor(&mut self, name: &str, dtype: DType, dims: &[u64]) -> Result<(), WriteError> {
        if self.names.contains(name) {
            return Err(WriteError::DuplicateTensor { tensor: name.to_owned() });
        }
        if dims.len() > MAX_DIMS {
            let (tensor, found) = (name.to_owned(), dims.len() as u32);
            return Err(Box::new(ErrorKind::DimCount { tensor, max: MAX_DIMS, found }).into());
        }
        let byte_len = tensor_bytes(name, dtype, dims).map_err(Box::new)?;
        self.names.insert(name.to_owned());
        self.tensors.push(Planned { name: name.to_owned(), dtype, dims: dims.to_vec(), byte_len });
        Ok(())
    }

    /// Bytes of the whole file.
    pub fn file_len(&self) -> u64 {
        let data = self.tensors.iter().fold(0u64, |at, t| align_up(at.saturating_add(t.byte_len), self.alignment));
        (self.head().len() as u64).saturating_add(data)
    }

    /// Writes the header; the tensors' bytes follow through the stream, in the order of declaration.
    ///
    /// # Errors
    /// Writing fails.
    pub fn begin<W: Write>(self, mut out: W) -> Result<TensorStream<W>, WriteError> {
        out.write_all(&self.head())?;
        Ok(TensorStream { out, alignment: self.alignment, tensors: self.tensors.into_iter(), current: None }.next())
    }

    /// Everything before the tensors' bytes.
    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            put_str(&mut head, key);
            head.extend((value.value_type() as u32).to_le_bytes());
            put_value(&mut head, value);
        }
        let mut offset = 0u64;
        for t in &self.tensors {
            put_str(&mut head, &t.name);
            head.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| head.extend(d.to_le_bytes()));
            head.extend(t.dtype.id().to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset = align_up(offset.saturating_add(t.byte_len), self.alignment);
        }
        head.resize(align_up(head.len() as u64, self.alignment) as usize, 0);
        head
    }
}

/// Takes the bytes of the declared tensors one after the other, in pieces of any size.
pub struct TensorStream<W> {
    out: W,
    alignment: u64,
    tensors: std::vec::IntoIter<Planned>,
    /// The tensor being written and the bytes it has.
    current: Option<(Planned, u64)>,
}

impl<W: Write> TensorStream<W> {
    fn next(mut self) -> Self {
        self.current = self.tensors.next().map(|t| (t, 0));
        self
    }

    /// Appends bytes to the current tensor; it ends, and the next begins, when it has all of them.
    ///
    /// # Errors
    /// There are more bytes than the tensor lacks, or writing fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let n = bytes.len() as u64;
        let Some((tensor, have)) = &mut self.current else {
            return if n == 0 { Ok(()) } else { Err(WriteError::Surplus { found: n }) };
        };
        let found = *have + n;
        if found > tensor.byte_len {
            return Err(WriteError::Length { tensor: tensor.name.clone(), expected: tensor.byte_len, found });
        }
        self.out.write_all(bytes)?;
        *have = found;
        if found == tensor.byte_len {
            let padding = align_up(found, self.alignment) - found;
            io::copy(&mut io::Read::take(io::repeat(0), padding), &mut self.out)?;
            self.current = self.tensors.next().map(|t| (t, 0));
        }
        Ok(())
    }

    /// Ends the file and gives the sink back, flushed.
    ///
    /// # Errors
    /// A tensor lacks bytes, or writing fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some((tensor, found)) = self.current {
            return Err(WriteError::Length { tensor: tensor.name, expected: tensor.byte_len, found });
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn put_str(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(x) => out.extend(x.to_le_bytes()),
        Value::I8(x) => out.extend(x.to_le_bytes()),
        Value::U16(x) => out.extend(x.to_le_bytes()),
        Value::I16(x) => out.extend(x.to_le_bytes()),
        Value::U32(x) => out.extend(x.to_le_bytes()),
        Value::I32(x) => out.extend(x.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::Bool(x) => out.push(*x as u8),
        Value::String(s) => put_str(out, s),
        Value::Array(a) => put_array(out, a),
        Value::U64(x) => out.extend(x.to_le_bytes()),
        Value::I64(x) => out.extend(x.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend((array.element_type() as u32).to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&x| x as u8)),
        Array::String(v) => v.iter().for_each(|s| put_str(out, s)),
        Array::Array(v) => v.iter().for_each(|a| put_array(out, a)),
        Array::U64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
    }
}
