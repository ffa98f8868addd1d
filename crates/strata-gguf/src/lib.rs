//! GGUF container: checked reader (mmap, split files) and writer.
//!
//! [`Gguf::open`] maps a model file and its further shards and checks everything that later code relies on:
//! counts, strings, tensor shapes, offsets and sizes. After it returned, [`Gguf::data`] cannot fail. Foreign
//! bytes never cause a panic, and no allocation is larger than a small multiple of the bytes that pay for it.
//!
//! ```no_run
//! # fn main() -> Result<(), strata_gguf::GgufError> {
//! let gguf = strata_gguf::Gguf::open("model-00001-of-00004.gguf")?;
//! let blocks: u32 = gguf.metadata().get("qwen4exp.block_count")?;
//! for info in gguf.tensors() {
//!     println!("{} {} {:?} {}", info.name, info.dtype, info.dims, gguf.data(info).len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Rooms: `cursor` reads bounded little-endian fields, `parse` turns one file's header into metadata and tensor
//! infos, `layout` checks shapes and places, `split` knows shard names, `reader` joins them, `writer` is the inverse.

mod cursor;
mod error;
mod layout;
mod metadata;
mod parse;
mod reader;
mod split;
mod value;
mod writer;

pub use error::{ErrorKind, GgufError};
pub use metadata::{FromValue, Metadata};
pub use reader::{Gguf, TensorInfo};
pub use value::{Array, StringArray, Value, ValueType};
pub use writer::{GgufWriter, TensorStream, WriteError};

/// The key that sets the alignment of the data section.
const ALIGNMENT_KEY: &str = "general.alignment";
/// Alignment of the data section and of each tensor where the file does not say.
const DEFAULT_ALIGNMENT: u64 = 32;
/// The four bytes a GGUF file starts with.
const MAGIC: [u8; 4] = *b"GGUF";
/// Dimensions a tensor may have.
const MAX_DIMS: usize = 4;
