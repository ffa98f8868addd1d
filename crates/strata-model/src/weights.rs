//! Binding of tensors by exact name and shape.

use crate::error::BindError;
use crate::storage::{RowReader, Storage};
use crate::unseen::Stack;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeSet;
use strata_gguf::{Gguf, TensorInfo};
use strata_ops::backend::{Backend, OpError};
use strata_quant::DType;

/// How weights meet activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightMode {
    /// As stored: quantised weights take int8 activations.
    AsStored,
    /// Every matrix dequantised to `f32`, with `f32` activations: a verification mode.
    DequantizedF32,
}

/// Takes tensors out of one file and remembers which were taken.
pub struct Binder<'a, B: Backend> {
    pub backend: &'a B,
    pub gguf: &'a Gguf,
    mode: WeightMode,
    storage: &'a dyn Storage,
    taken: RefCell<BTreeSet<String>>,
}

impl<'a, B: Backend> Binder<'a, B> {
    pub fn new(backend: &'a B, gguf: &'a Gguf, mode: WeightMode, storage: &'a dyn Storage) -> Binder<'a, B> {
        Binder { backend, gguf, mode, storage, taken: RefCell::default() }
    }

    fn file(&self) -> String {
        self.gguf.path().display().to_string()
    }

    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// The first of `names` that the file holds, else the first (whose absence is then reported).
    pub fn either<'n>(&self, names: [&'n str; 2]) -> &'n str {
        if !self.has(names[0]) && self.has(names[1]) { names[1] } else { names[0] }
    }

    /// A tensor of exactly this shape (fastest dimension first); a trailing dimension of 1 may be left out or added.
    fn find(&self, name: &str, shape: &[usize]) -> Result<&'a TensorInfo, BindError> {
        let expected: Vec<u64> = shape.iter().map(|d| *d as u64).collect();
        let Some(t) = self.gguf.tensor(name) else {
            return Err(BindError::MissingTensor { file: self.file(), name: name.to_string(), expected });
        };
        let trim = |d: &[u64]| d[..d.iter().rposition(|x| *x != 1).map_or(1.min(d.len()), |p| p + 1)].to_vec();
        if trim(&t.dims) != trim(&expected) {
            return Err(BindError::Shape { file: self.file(), name: name.to_string(), expected, found: t.dims.clone() });
        }
        self.taken.borrow_mut().insert(name.to_string());
        Ok(t)
    }

    /// An error if a scale in `bytes`, the tensor's first ones, is not finite.
    fn check(&self, t: &TensorInfo, bytes: &[u8]) -> Result<(), BindError> {
        if self.storage.sizes_only() {
            return Ok(());
        }
        match strata_quant::first_non_finite(t.dtype, bytes) {
            Some(block) => Err(BindError::NotFinite { file: self.file(), name: t.name.clone(), dtype: t.dtype, block }),
            None => Ok(()),
        }
    }

    /// The bytes of a matrix that every token reads, once its scales are known to be finite.
    fn dense(&self, t: &TensorInfo) -> Result<Bytes, BindError> {
        let bytes = self.storage.dense(self.gguf, t)?;
        self.check(t, &bytes)?;
        Ok(bytes)
    }

    fn to_f32(&self, t: &TensorInfo, bytes: &[u8], values: usize) -> Result<Vec<f32>, BindError> {
        let mut v = Vec::new();
        v.try_reserve_exact(values).map_err(|_| OpError::OutOfMemory { what: format!("{} as f32", t.name), bytes: values as u128 * 4 })?;
        v.resize(values, 0.0);
        strata_quant::dequantize(t.dtype, bytes, &mut v).map_err(|e| OpError::Invalid {
            what: t.name.clone(),
            expected: "whole rows".into(),
            found: e.to_string(),
        })?;
        Ok(v)
    }

    /// A vector of any float format, on the host.
    pub fn host_vector(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, BindError> {
        let t = self.find(name, shape)?;
        let bytes = self.gguf.data(t);
        self.check(t, &bytes)?;
        self.to_f32(t, &bytes, shape.iter().product())
    }

    fn upload(&self, name: &str, v: &[f32]) -> Result<B::Buf, BindError> {
        let mut buf = self.backend.buf(v.len(), name)?;
        self.backend.write(&mut buf, 0, v);
        Ok(buf)
    }

    /// A vector on the device.
    pub fn vector(&self, name: &str, len: usize) -> Result<B::Buf, BindError> {
        self.upload(name, &self.host_vector(name, &[len])?)
    }

    /// Convolution taps stored as `{taps, channels}`, turned to `[taps, channels]`.
    pub fn taps(&self, name: &str, taps: usize, channels: usize) -> Result<B::Buf, BindError> {
        let v = self.host_vector(name, &[taps, channels])?;
        let turned: Vec<f32> = (0..taps * channels).map(|i| v[(i % channels) * taps + i / channels]).collect();
        self.upload(name, &turned)
    }

    fn make(&self, t: &TensorInfo, dtype: DType, bytes: Bytes, rows: usize, cols: usize) -> Result<B::Matrix, BindError> {
        if self.mode == WeightMode::DequantizedF32 && dtype != DType::F32 && !self.storage.sizes_only() {
            let v = self.to_f32(t, &bytes, rows * cols)?;
            let le: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes()).collect();
            return Ok(self.backend.matrix(DType::F32, rows, cols, Bytes::from(le), &t.name)?);
        }
        Ok(self.backend.matrix(dtype, rows, cols, bytes, &t.name)?)
    }

    /// A matrix of `rows` outputs and `cols` inputs.
    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<B::Matrix, BindError> {
        let t = self.find(name, &[cols, rows])?;
        self.make(t, t.dtype, self.dense(t)?, rows, cols)
    }

    /// A stack of `experts` matrices of a layer, and its bytes if some of them are still to be checked.
    pub fn stack(
        &self,
        name: &str,
        layer: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<(B::Matrix, Option<Stack>), BindError> {
        let t = self.find(name, &[cols, rows, experts])?;
        let found = self.storage.stack(self.gguf, t, layer, experts)?;
        // a copy reads all of them anyway
        let checked = if self.mode == WeightMode::DequantizedF32 { experts } else { found.checked.min(experts) };
        self.check(t, &found.bytes[..found.bytes.len() / experts * checked])?;
        let rest = Stack { file: self.file(), name: t.name.clone(), dtype: t.dtype, bytes: found.bytes.clone(), checked };
        Ok((self.make(t, t.dtype, found.bytes, experts * rows, cols)?, (checked < experts).then_some(rest)))
    }

    /// Two stacks from one fused tensor whose experts hold the rows of the first, then of the second.
    pub fn fused_stack(&self, name: &str, experts: usize, rows: usize, cols: usize) -> Result<(B::Matrix, B::Matrix), BindError> {
        let t = self.find(name, &[cols, 2 * rows, experts])?;
        let bytes = self.storage.copied_stack(self.gguf, t);
        self.check(t, &bytes)?;
        let part = bytes.len() / (2 * experts);
        if self.storage.sizes_only() {
            let half = || self.make(t, t.dtype, bytes.slice(..part * experts), experts * rows, cols);
            return Ok((half()?, half()?));
        }
        let half = |which: usize| -> Bytes {
            (0..experts).flat_map(|e| bytes[(2 * e + which) * part..][..part].iter().copied()).collect::<Vec<u8>>().into()
        };
        Ok((self.make(t, t.dtype, half(0), experts * rows, cols)?, self.make(t, t.dtype, half(1), experts * rows, cols)?))
    }

    /// The token embedding: a table read row by row. Its values are checked when rows are used.
    pub fn table(&self, name: &str, cols: usize, min_rows: u64) -> Result<B::Table, BindError> {
        let t = self.find_table(name, cols, min_rows)?;
        self.bind_table(t, cols, self.storage.embedding(self.gguf, t))
    }

    /// A table of which a token reads `per_token` rows: a reader of it, or the table itself where it is mapped. Its values
    /// are checked when rows are used, not here: it may be far larger than memory.
    #[allow(clippy::type_complexity)]
    pub fn rows(
        &self,
        name: &str,
        cols: usize,
        min_rows: u64,
        per_token: usize,
    ) -> Result<Result<Box<dyn RowReader>, B::Table>, BindError> {
        let t = self.find_table(name, cols, min_rows)?;
        match self.storage.rows(self.gguf, t, per_token)? {
            Some(reader) => Ok(Ok(reader)),
            None => Ok(Err(self.bind_table(t, cols, self.gguf.data(t))?)),
        }
    }

    fn bind_table(&self, t: &TensorInfo, cols: usize, bytes: Bytes) -> Result<B::Table, BindError> {
        Ok(self.backend.table(t.dtype, t.rows() as usize, cols, bytes, &t.name)?)
    }

    fn find_table(&self, name: &str, cols: usize, min_rows: u64) -> Result<&'a TensorInfo, BindError> {
        let Some(t) = self.gguf.tensor(name) else {
            return Err(BindError::MissingTensor { file: self.file(), name: name.to_string(), expected: vec![cols as u64, min_rows] });
        };
        let rows = t.dims.get(1).copied().unwrap_or(1);
        if t.dims.len() > 2 || t.dims.first() != Some(&(cols as u64)) || rows < min_rows {
            return Err(BindError::Shape {
                file: self.file(),
                name: name.to_string(),
                expected: vec![cols as u64, min_rows],
                found: t.dims.clone(),
            });
        }
        self.taken.borrow_mut().insert(name.to_string());
        Ok(t)
    }

    /// An error if the file holds a tensor that was not taken and for which `known` is false.
    pub fn finish(&self, known: impl Fn(&str) -> bool) -> Result<(), BindError> {
        let taken = self.taken.borrow();
        match self.gguf.tensors().find(|t| !taken.contains(&t.name) && !known(&t.name)) {
            Some(t) => Err(BindError::UnexpectedTensor { file: self.file(), name: t.name.clone() }),
            None => Ok(()),
        }
    }
}
