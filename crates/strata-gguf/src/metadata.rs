//! The metadata of a model: keys in file order, and typed access to them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::{Array, ErrorKind, GgufError, StringArray, Value};

/// Name given to bytes that have no file.
pub(crate) const MEMORY: &str = "(memory)";

/// Keys and values in file order. [`Default`] is empty, for tests and writers.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Default for Metadata {
    fn default() -> Self {
        Self::of_file(Path::new(MEMORY))
    }
}

impl Metadata {
    pub(crate) fn of_file(file: &Path) -> Self {
        Self { file: file.to_owned(), entries: Vec::new(), index: HashMap::new() }
    }

    /// Sets a key: a new one is appended, an old one keeps its place and gives its old value back.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.index.get(&key) {
            Some(&i) => Some(std::mem::replace(&mut self.entries[i].1, value)),
            None => {
                self.index.insert(key.clone(), self.entries.len());
                self.entries.push((key, value));
                None
            }
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The value of a key as it is in the file.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// The value of a key as `T`. Integers convert from any width that fits.
    ///
    /// # Errors
    /// The key is missing, or holds another type or an integer outside the range of `T`.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        let missing = || self.error(ErrorKind::MissingKey { key: key.to_owned(), expected: T::EXPECTED });
        self.get_opt(key)?.ok_or_else(missing)
    }

    /// As [`Metadata::get`], with `None` for a missing key.
    ///
    /// # Errors
    /// The key holds another type or an integer outside the range of `T`.
    pub fn get_opt<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || self.error(ErrorKind::WrongType { key: key.to_owned(), expected: T::EXPECTED, found: value.to_string() });
        T::from_value(value).map(Some).ok_or_else(wrong)
    }

    /// [`Metadata::get`] of an unsigned integer of 32 bits.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        self.get(key)
    }

    /// [`Metadata::get`] of an unsigned integer of 64 bits.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.get(key)
    }

    /// [`Metadata::get`] of a float.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        self.get(key)
    }

    /// [`Metadata::get`] of a bool.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        self.get(key)
    }

    /// [`Metadata::get`] of a string.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.get(key)
    }

    fn error(&self, kind: ErrorKind) -> GgufError {
        GgufError::new(&self.file, kind)
    }
}

/// A type that metadata values convert to.
pub trait FromValue<'a>: Sized {
    /// What a message says was expected.
    const EXPECTED: &'static str;

    /// `None` if the value is of another kind or out of range.
    fn from_value(value: &'a Value) -> Option<Self>;
}

/// Every element of an integer array, in the type `T`; `None` if the array holds something else or one does not fit.
fn integers<T>(value: &Value) -> Option<Vec<T>>
where
    T: TryFrom<u8> + TryFrom<i8> + TryFrom<u16> + TryFrom<i16> + TryFrom<u32> + TryFrom<i32> + TryFrom<u64>,
    T: TryFrom<i64>,
{
    fn all<S: Copy, T: TryFrom<S>>(v: &[S]) -> Option<Vec<T>> {
        v.iter().map(|&x| T::try_from(x).ok()).collect()
    }
    let Value::Array(array) = value else { return None };
    match array {
        Array::U8(v) => all(v),
        Array::I8(v) => all(v),
        Array::U16(v) => all(v),
        Array::I16(v) => all(v),
        Array::U32(v) => all(v),
        Array::I32(v) => all(v),
        Array::U64(v) => all(v),
        Array::I64(v) => all(v),
        _ => None,
    }
}

macro_rules! integer {
    ($($t:ty: $scalar:literal, $array:literal;)*) => {$(
        impl FromValue<'_> for $t {
            const EXPECTED: &'static str = $scalar;
            fn from_value(value: &Value) -> Option<Self> {
                value.as_integer().and_then(|x| x.try_into().ok())
            }
        }
        impl FromValue<'_> for Vec<$t> {
            const EXPECTED: &'static str = $array;
            fn from_value(value: &Value) -> Option<Self> {
                integers(value)
            }
        }
    )*};
}
integer! {
    u8: "an integer that fits u8", "an array of integers that fit u8";
    u16: "an integer that fits u16", "an array of integers that fit u16";
    u32: "an integer that fits u32", "an array of integers that fit u32";
    u64: "an integer that fits u64", "an array of integers that fit u64";
    i32: "an integer that fits i32", "an array of integers that fit i32";
    i64: "an integer that fits i64", "an array of integers that fit i64";
    usize: "an integer that fits usize", "an array of integers that fit usize";
}

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a float";
    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        }
    }
}

impl FromValue<'_> for Vec<f32> {
    const EXPECTED: &'static str = "an array of floats";
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Array(Array::F32(v)) => Some(v.clone()),
            Value::Array(Array::F64(v)) => Some(v.iter().map(|&x| x as f32).collect()),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a bool";
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bool(x) = *value { Some(x) } else { None }
    }
}

impl FromValue<'_> for Vec<bool> {
    const EXPECTED: &'static str = "an array of bools";
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Array(Array::Bool(v)) = value { Some(v.clone()) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";
    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::String(s) = value { Some(s) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a StringArray {
    const EXPECTED: &'static str = "an array of strings";
    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::Array(Array::String(v)) = value { Some(v) } else { None }
    }
}
