//! An open model: one file or all shards of a split one.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use memmap2::Mmap;
use strata_quant::DType;

use crate::layout::check_places;
use crate::metadata::{MEMORY, Metadata};
use crate::parse::{Header, parse};
use crate::split::{COUNT_KEY, Split};
use crate::{ErrorKind, GgufError};

/// A tensor of an open model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    pub name: String,
    pub dtype: DType,
    /// Sizes, fastest dimension first (`ne` order): a matrix is `[cols, rows]`. None is zero; empty for a scalar.
    pub dims: Vec<u64>,
    /// The file that holds it, as an index into [`Gguf::files`].
    pub shard: usize,
    /// Where its bytes start in that file.
    pub offset: u64,
    /// Its size in bytes.
    pub byte_len: u64,
}

impl TensorInfo {
    /// Values in a row.
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows, over all higher dimensions.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

/// One file of a model.
struct Shard {
    path: PathBuf,
    bytes: Bytes,
}

/// An open, fully checked model. Cheap parts of it may be shared: [`Gguf::data`] keeps the mapping alive.
pub struct Gguf {
    version: u32,
    mapped: bool,
    metadata: Metadata,
    shards: Vec<Shard>,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Maps the file at `path`, and the other shards beside it if it is the first of a split model.
    ///
    /// The files must not be changed or cut while the model is open.
    ///
    /// # Errors
    /// A file cannot be read, is malformed or truncated, has a tensor type this build does not know, or the shards
    /// do not belong together.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, GgufError> {
        let path = path.as_ref();
        let (bytes, header) = map(path)?;
        let split = Split::of(&header.metadata, path)?;
        let mut gguf = Gguf::empty(&header);
        gguf.add(path.to_owned(), bytes, &header)?;
        if let Some(split) = split {
            for (shard, path) in (2..).zip(split.other_paths(path)?) {
                let (bytes, header) = map(&path)?;
                split.check_shard(shard, &path, &header.metadata)?;
                gguf.add(path, bytes, &header)?;
            }
            let found = gguf.tensors.len() as u64;
            if let Some(expected) = split.tensors.filter(|&n| n != found) {
                return Err(GgufError::new(path, ErrorKind::SplitTensorCount { expected, found }));
            }
        }
        gguf.metadata = header.metadata;
        gguf.mapped = true;
        Ok(gguf)
    }

    /// Reads a whole model from its bytes, for one that is part of the program or of a test.
    ///
    /// # Errors
    /// As [`Gguf::open`]; also if the bytes are one shard of several.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Gguf, GgufError> {
        Gguf::from_memory(MEMORY, bytes)
    }

    /// [`Gguf::from_bytes`] of a model that messages and [`Gguf::path`] call `name`.
    ///
    /// # Errors
    /// As [`Gguf::from_bytes`].
    pub fn from_memory(name: impl AsRef<Path>, bytes: impl Into<Bytes>) -> Result<Gguf, GgufError> {
        let (path, bytes) = (name.as_ref(), bytes.into());
        let header = checked(path, &bytes)?;
        if let Some(count) = header.metadata.get_opt::<u64>(COUNT_KEY)?.filter(|&n| n > 1) {
            return Err(GgufError::new(path, ErrorKind::SplitBytes { count }));
        }
        let mut gguf = Gguf::empty(&header);
        gguf.add(path.to_owned(), bytes, &header)?;
        gguf.metadata = header.metadata;
        Ok(gguf)
    }

    fn empty(first: &Header) -> Gguf {
        Gguf {
            version: first.version,
            mapped: false,
            metadata: Metadata::default(),
            shards: Vec::new(),
            tensors: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Takes over the tensors of one more file.
    fn add(&mut self, path: PathBuf, bytes: Bytes, header: &Header) -> Result<(), GgufError> {
        let shard = self.shards.len();
        self.shards.push(Shard { path, bytes });
        for t in &header.tensors {
            if let Some(first) = self.index.insert(t.name.clone(), self.tensors.len()) {
                let first = self.shards[self.tensors[first].shard].path.display().to_string();
                let kind = ErrorKind::DuplicateTensor { tensor: t.name.clone(), first };
                return Err(GgufError::new(&self.shards[shard].path, kind));
            }
            self.tensors.push(TensorInfo {
                name: t.name.clone(),
                dtype: t.dtype,
                dims: t.dims.clone(),
                shard,
                offset: header.data_start + t.offset,
                byte_len: t.byte_len,
            });
        }
        Ok(())
    }

    /// The first (or only) file, to name the model in messages; `(memory)` for bytes.
    pub fn path(&self) -> &Path {
        &self.shards[0].path
    }

    /// True if the tensors' bytes are mapped files, which the system may drop and read again; false for bytes in memory.
    pub fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Container version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The metadata of the first (or only) file. Further shards have nothing but split keys.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order, shard by shard.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor of this name, in whichever shard it is.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The bytes of a tensor of this model, shared with the mapping: no copy. The address is aligned as the file
    /// says for mapped files (32 bytes by default) and not at all for [`Gguf::from_bytes`].
    ///
    /// # Panics
    /// If `info` is of another, larger model.
    pub fn data(&self, info: &TensorInfo) -> Bytes {
        let start = info.offset as usize;
        self.shards[info.shard].bytes.slice(start..start + info.byte_len as usize)
    }

    /// The model's files in shard order; `(memory)` for bytes.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|s| s.path.as_path())
    }

    /// Size of all files together.
    pub fn total_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.bytes.len() as u64).sum()
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("files", &self.files().collect::<Vec<_>>())
            .field("version", &self.version)
            .field("keys", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}

fn map(path: &Path) -> Result<(Bytes, Header), GgufError> {
    let io = |e: std::io::Error| GgufError::new(path, e.into());
    let file = File::open(path).map_err(io)?;
    // SAFETY: the mapping is read-only and private to this process. It is undefined if another process changes or
    // cuts the file meanwhile; `Gguf::open` asks its caller to leave the files alone, as every mmap reader must.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    let bytes = Bytes::from_owner(map);
    let header = checked(path, &bytes)?;
    Ok((bytes, header))
}

/// The header of one file, with every tensor's place checked.
fn checked(path: &Path, bytes: &[u8]) -> Result<Header, GgufError> {
    let in_file = |kind| GgufError::new(path, kind);
    let header = parse(path, bytes).map_err(in_file)?;
    check_places(&header, bytes.len() as u64).map_err(in_file)?;
    Ok(header)
}
