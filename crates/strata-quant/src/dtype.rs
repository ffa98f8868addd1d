//! The tensor types a GGUF file may hold, and the table that describes each.

use thiserror::Error;

use crate::block::{BlockFormat, ByteArray, FloatFormat, Visitor};
use crate::formats;

/// One row of the format table.
struct Row {
    dtype: DType,
    name: &'static str,
    /// The type id in a GGUF tensor info.
    id: u32,
    /// Values a block.
    block_len: usize,
    /// Bytes a block.
    block_bytes: usize,
}

/// Makes the enum, the table and the visit from the rows: kind, name (also that of the type in `formats`), GGUF type id.
macro_rules! formats {
    ($($kind:ident $name:ident = $id:literal,)*) => {
        /// A tensor element format. Names are those of the GGUF ecosystem.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType {
            $($name,)*
        }

        /// Every format this build reads, in the order of the enum.
        const TABLE: &[Row] = &[$(Row {
            dtype: DType::$name,
            name: stringify!($name),
            id: $id,
            block_len: formats!(@len $kind $name),
            block_bytes: formats!(@bytes $kind $name),
        },)*];

        impl DType {
            /// Does something with the format's type.
            #[inline(always)]
            pub fn visit<V: Visitor>(self, visitor: V) -> V::Out {
                match self {
                    $(DType::$name => visitor.$kind::<formats::$name>(),)*
                }
            }
        }
    };
    (@len float $name:ident) => { 1 };
    (@len block $name:ident) => { <formats::$name as BlockFormat>::LEN };
    (@bytes float $name:ident) => { <formats::$name as FloatFormat>::Bytes::LEN };
    (@bytes block $name:ident) => { <formats::$name as BlockFormat>::Bytes::LEN };
}

formats! {
    float F32 = 0,
    float F16 = 1,
    float BF16 = 30,
    block Q8_0 = 8,
    block Q4_0 = 2,
    block Q4_1 = 3,
    block Q5_0 = 6,
    block Q5_1 = 7,
    block Q2_0 = 42,
    block MXFP4 = 39,
    block NVFP4 = 40,
    block Q2_K = 10,
    block Q3_K = 11,
    block Q4_K = 12,
    block Q5_K = 13,
    block Q6_K = 14,
    block IQ4_NL = 20,
    block IQ4_XS = 23,
    block IQ3_S = 21,
    block IQ3_XXS = 18,
    block IQ2_S = 22,
    block IQ2_XS = 17,
    block IQ2_XXS = 16,
    block IQ1_M = 29,
    block IQ1_S = 19,
}

/// A GGUF type id that this build does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("unknown or unsupported tensor type id {0}")]
pub struct UnknownDType(pub u32);

impl DType {
    /// Every supported format.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|r| r.dtype)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The format's name as tools print it, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The type id used in GGUF tensor infos.
    pub fn id(self) -> u32 {
        self.row().id
    }

    /// The format with this GGUF type id.
    pub fn from_id(id: u32) -> Result<DType, UnknownDType> {
        TABLE.iter().find(|r| r.id == id).map(|r| r.dtype).ok_or(UnknownDType(id))
    }

    /// The format with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|r| r.name.eq_ignore_ascii_case(name)).map(|r| r.dtype)
    }

    /// Values in a block (1 for the float types).
    pub fn block_len(self) -> usize {
        self.row().block_len
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        self.row().block_bytes
    }

    /// Bytes of a row of `cols` values; `None` if `cols` is not a whole number of blocks or the size overflows.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        (cols.is_multiple_of(self.block_len())).then(|| (cols / self.block_len()).checked_mul(self.block_bytes()))?
    }

    /// True for F32, F16 and BF16, whose products take `f32` activations.
    pub fn is_float(self) -> bool {
        self.block_len() == 1
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_follows_the_enum_and_ids_are_unique() {
        for (i, r) in TABLE.iter().enumerate() {
            assert_eq!(r.dtype as usize, i, "{}", r.name);
            assert_eq!(DType::from_id(r.id), Ok(r.dtype));
            assert_eq!(DType::from_name(&r.name.to_lowercase()), Some(r.dtype));
        }
        assert_eq!(DType::from_id(4), Err(UnknownDType(4)));
    }

    #[test]
    fn row_sizes() {
        assert_eq!(DType::Q8_0.row_bytes(64), Some(68));
        assert_eq!(DType::Q4_K.row_bytes(128), None);
        assert_eq!(DType::F32.row_bytes(usize::MAX), None);
    }
}
