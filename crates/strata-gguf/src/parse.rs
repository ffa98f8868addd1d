//! One file's header: metadata and tensor infos, as the file states them.

use std::path::Path;

use strata_quant::DType;

use crate::cursor::Cursor;
use crate::layout::{align_up, tensor_bytes};
use crate::metadata::Metadata;
use crate::{ALIGNMENT_KEY, Array, DEFAULT_ALIGNMENT, ErrorKind, MAGIC, MAX_DIMS, StringArray, Value, ValueType};

/// Arrays inside arrays beyond this depth are refused; real files have depth 1.
pub(crate) const MAX_ARRAY_DEPTH: usize = 4;
/// Fewest bytes of a key with its value: length, type id, a one-byte value.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
/// Fewest bytes of a tensor info: name length, dimension count, type id, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// A parsed header. Tensor offsets are relative to `data_start`; they are not checked yet.
pub(crate) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    pub alignment: u64,
    /// Where the data section starts.
    pub data_start: u64,
    pub tensors: Vec<RawTensor>,
}

/// A tensor info with a known type and a shape whose size in bytes is known.
pub(crate) struct RawTensor {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<u64>,
    pub offset: u64,
    pub byte_len: u64,
}

/// Reads the header of the file whose bytes are given; `file` only names it in later messages of the metadata.
pub(crate) fn parse(file: &Path, bytes: &[u8]) -> Result<Header, ErrorKind> {
    let c = &mut Cursor::new(bytes);
    let magic = c.array("the magic")?;
    if magic != MAGIC {
        return Err(ErrorKind::Magic { found: magic });
    }
    let version = c.u32("the version")?;
    match version {
        2 | 3 => {}
        v if v & 0xffff == 0 && v != 0 => return Err(ErrorKind::BigEndian { found: v }),
        found => return Err(ErrorKind::Version { found }),
    }
    let n_tensors = c.count(MIN_TENSOR_BYTES, "the tensor count")?;
    let n_keys = c.count(MIN_KEY_BYTES, "the key count")?;

    let mut metadata = Metadata::of_file(file);
    for _ in 0..n_keys {
        let key = c.str("a key")?;
        let value = value(c, key)?;
        if metadata.insert(key, value).is_some() {
            return Err(ErrorKind::DuplicateKey { key: key.to_owned() });
        }
    }
    let alignment = alignment(&metadata)?;

    c.check_room(n_tensors as u64, MIN_TENSOR_BYTES, "the tensor infos")?;
    let tensors = (0..n_tensors).map(|_| tensor(c)).collect::<Result<Vec<_>, _>>()?;
    let data_start = align_up(c.pos(), alignment);
    Ok(Header { version, metadata, alignment, data_start, tensors })
}

/// The alignment a file asks for. An integer of any width, a power of two below 2^32.
fn alignment(metadata: &Metadata) -> Result<u64, ErrorKind> {
    let n: Option<u32> = metadata.get_opt(ALIGNMENT_KEY).map_err(|e| *e.kind)?;
    let Some(n) = n else { return Ok(DEFAULT_ALIGNMENT) };
    if n.is_power_of_two() { Ok(n.into()) } else { Err(ErrorKind::Alignment { found: n.into() }) }
}

fn value_type(c: &mut Cursor<'_>, key: &str) -> Result<ValueType, ErrorKind> {
    let found = c.u32("a value type")?;
    ValueType::from_id(found).ok_or_else(|| ErrorKind::ValueType { key: key.to_owned(), found })
}

fn boolean(byte: u8, key: &str) -> Result<bool, ErrorKind> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(ErrorKind::Bool { key: key.to_owned(), found }),
    }
}

fn value(c: &mut Cursor<'_>, key: &str) -> Result<Value, ErrorKind> {
    const WHAT: &str = "a value";
    Ok(match value_type(c, key)? {
        ValueType::U8 => Value::U8(u8::from_le_bytes(c.array(WHAT)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(c.array(WHAT)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(c.array(WHAT)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(c.array(WHAT)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(c.array(WHAT)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(c.array(WHAT)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(c.array(WHAT)?)),
        ValueType::Bool => Value::Bool(boolean(c.array::<1>(WHAT)?[0], key)?),
        ValueType::String => Value::String(c.str(WHAT)?.to_owned()),
        ValueType::Array => Value::Array(array(c, key, 1)?),
        ValueType::U64 => Value::U64(u64::from_le_bytes(c.array(WHAT)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(c.array(WHAT)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(c.array(WHAT)?)),
    })
}

fn array(c: &mut Cursor<'_>, key: &str, depth: usize) -> Result<Array, ErrorKind> {
    /// `n` fixed-size elements in one copy.
    fn scalars<const N: usize, T>(c: &mut Cursor<'_>, n: usize, f: fn([u8; N]) -> T) -> Result<Vec<T>, ErrorKind> {
        let (elements, _) = c.take(n as u64 * N as u64, "array elements")?.as_chunks::<N>();
        Ok(elements.iter().map(|e| f(*e)).collect())
    }

    if depth > MAX_ARRAY_DEPTH {
        return Err(ErrorKind::ArrayDepth { key: key.to_owned(), max: MAX_ARRAY_DEPTH });
    }
    let element = value_type(c, key)?;
    let n = c.count(element.min_bytes(), "an array count")?;
    Ok(match element {
        ValueType::U8 => Array::U8(scalars(c, n, u8::from_le_bytes)?),
        ValueType::I8 => Array::I8(scalars(c, n, i8::from_le_bytes)?),
        ValueType::U16 => Array::U16(scalars(c, n, u16::from_le_bytes)?),
        ValueType::I16 => Array::I16(scalars(c, n, i16::from_le_bytes)?),
        ValueType::U32 => Array::U32(scalars(c, n, u32::from_le_bytes)?),
        ValueType::I32 => Array::I32(scalars(c, n, i32::from_le_bytes)?),
        ValueType::F32 => Array::F32(scalars(c, n, f32::from_le_bytes)?),
        ValueType::U64 => Array::U64(scalars(c, n, u64::from_le_bytes)?),
        ValueType::I64 => Array::I64(scalars(c, n, i64::from_le_bytes)?),
        ValueType::F64 => Array::F64(scalars(c, n, f64::from_le_bytes)?),
        ValueType::Bool => {
            let bytes = c.take(n as u64, "array elements")?;
            Array::Bool(bytes.iter().map(|&b| boolean(b, key)).collect::<Result<_, _>>()?)
        }
        ValueType::String => {
            let mut strings = StringArray::with_capacity(n);
            for _ in 0..n {
                strings.push(c.str("an array string")?);
            }
            Array::String(strings)
        }
        ValueType::Array => Array::Array((0..n).map(|_| array(c, key, depth + 1)).collect::<Result<_, _>>()?),
    })
}

fn tensor(c: &mut Cursor<'_>) -> Result<RawTensor, ErrorKind> {
    const WHAT: &str = "a tensor info";
    let name = c.str("a tensor name")?.to_owned();
    let n_dims = c.u32(WHAT)?;
    if n_dims as usize > MAX_DIMS {
        return Err(ErrorKind::DimCount { tensor: name, max: MAX_DIMS, found: n_dims });
    }
    let dims = (0..n_dims).map(|_| c.u64(WHAT)).collect::<Result<Vec<_>, _>>()?;
    let id = c.u32(WHAT)?;
    let offset = c.u64(WHAT)?;
    let Ok(dtype) = DType::from_id(id) else { return Err(ErrorKind::TensorType { tensor: name, id }) };
    let byte_len = tensor_bytes(&name, dtype, &dims)?;
    Ok(RawTensor { name, dtype, dims, offset, byte_len })
}
