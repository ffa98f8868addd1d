//! Files for the tests: whole ones by the writer, malformed ones byte by byte.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};

use strata_gguf::{Array, Gguf, GgufWriter, Metadata, StringArray, Value};
use strata_quant::DType;
use strata_quant::testing::{SplitMix64, random_blocks};

/// Metadata with every value type, nested arrays too.
pub fn all_types() -> Metadata {
    let strings: StringArray = ["", "ein", "Wört\u{0}chen", "<|im_start|>"].into_iter().collect();
    let nested = |v: Vec<Array>| Value::Array(Array::Array(v));
    let mut m = Metadata::default();
    m.insert("a.u8", 200u8);
    m.insert("a.i8", -5i8);
    m.insert("a.u16", 60_000u16);
    m.insert("a.i16", -30_000i16);
    m.insert("a.u32", 4_000_000_000u32);
    m.insert("a.i32", -2_000_000_000i32);
    m.insert("a.u64", u64::MAX);
    m.insert("a.i64", i64::MIN);
    m.insert("a.f32", 1e-6f32);
    m.insert("a.f64", 0.1f64);
    m.insert("a.bool", true);
    m.insert("a.string", "grüße");
    m.insert("v.u8", vec![1u8, 2]);
    m.insert("v.i8", vec![-1i8]);
    m.insert("v.u16", vec![1u16, 2, 3]);
    m.insert("v.i16", vec![-1i16, 2]);
    m.insert("v.u32", vec![1u32]);
    m.insert("v.i32", vec![11i32, 11, 10, 0]);
    m.insert("v.u64", vec![1u64 << 50]);
    m.insert("v.i64", vec![-1i64]);
    m.insert("v.f32", vec![0.5f32, -0.0]);
    m.insert("v.f64", vec![0.1f64]);
    m.insert("v.bool", vec![true, false]);
    m.insert("v.empty", Vec::<u32>::new());
    m.insert("v.string", strings.clone());
    m.insert("v.nested", nested(vec![Array::U8(vec![1]), Array::Array(vec![Array::String(strings)])]));
    m
}

/// A file of these tensors, with random blocks. The last tensor's padding is not cut off.
pub fn file(metadata: Metadata, tensors: &[(&str, DType, &[u64])]) -> Vec<u8> {
    let mut writer = GgufWriter::new(metadata).unwrap();
    for (name, dtype, dims) in tensors {
        writer.tensor(name, *dtype, dims).unwrap();
    }
    let mut stream = writer.begin(Vec::new()).unwrap();
    for (i, (_, dtype, dims)) in tensors.iter().enumerate() {
        stream.write(&blocks(*dtype, dims, i as u64)).unwrap();
    }
    stream.finish().unwrap()
}

/// The bytes that [`file`] gives to tensor `i`.
pub fn blocks(dtype: DType, dims: &[u64], i: u64) -> Vec<u8> {
    let values = dims.iter().product::<u64>() as usize;
    random_blocks(dtype, values / dtype.block_len(), &mut SplitMix64::new(i))
}

/// A small valid file that ends with the last byte of its last tensor.
pub fn small() -> Vec<u8> {
    file(all_types(), &[("norm", DType::F32, &[3]), ("w", DType::Q8_0, &[64, 2]), ("last", DType::F16, &[16, 1, 2])])
}

/// Reads everything a model offers; returns the bytes seen.
pub fn touch(gguf: &Gguf) -> u64 {
    let mut seen = gguf.version() as u64;
    for (key, value) in gguf.metadata().iter() {
        // by address, since a NaN is not equal to itself
        assert!(std::ptr::eq(gguf.metadata().value(key).unwrap(), value));
        seen += value.to_string().len() as u64;
        if let Value::Array(Array::String(strings)) = value {
            assert!(strings.iter().enumerate().all(|(i, s)| strings.get(i) == Some(s)));
        }
    }
    for info in gguf.tensors() {
        assert_eq!(gguf.tensor(&info.name), Some(info));
        assert_eq!(gguf.data(info).len() as u64, info.byte_len);
        assert_eq!(info.dtype.row_bytes(info.cols() as usize).unwrap() as u64 * info.rows(), info.byte_len);
        seen += gguf.data(info).iter().map(|&b| b as u64).sum::<u64>();
    }
    seen
}

/// A header written by hand, for malformed ones.
#[derive(Clone)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    pub fn new(version: u32, tensors: u64, keys: u64) -> Self {
        Raw(b"GGUF".to_vec()).u32(version).u64(tensors).u64(keys)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn u32(self, x: u32) -> Self {
        self.bytes(&x.to_le_bytes())
    }

    pub fn u64(self, x: u64) -> Self {
        self.bytes(&x.to_le_bytes())
    }

    pub fn str(self, s: &str) -> Self {
        self.u64(s.len() as u64).bytes(s.as_bytes())
    }

    /// A key of a u32 value.
    pub fn key(self, key: &str, x: u32) -> Self {
        self.str(key).u32(4).u32(x)
    }

    pub fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let head = self.str(name).u32(dims.len() as u32);
        dims.iter().fold(head, |r, &d| r.u64(d)).u32(type_id).u64(offset)
    }

    /// Zeros up to a multiple of `alignment`, then `n` bytes of data.
    pub fn data(mut self, alignment: usize, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(alignment) + n, 0);
        self
    }

    pub fn open(self) -> Result<Gguf, strata_gguf::ErrorKind> {
        Gguf::from_bytes(self.0).map_err(|e| {
            assert_eq!(e.file, Path::new("(memory)"));
            *e.kind
        })
    }
}

/// An empty folder of the test's own.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
