//! The tensor types a GGUF file may hold, and the table that describes each.

use thiserror::Error;

/// A tensor element format. Names are those of the GGUF ecosystem.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    IQ3_S,
    IQ2_XS,
}

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

const fn row(dtype: DType, name: &'static str, id: u32, block_len: usize, block_bytes: usize) -> Row {
    Row { dtype, name, id, block_len, block_bytes }
}

/// Every format this build reads, in the order of the enum: adding one is one line here and one decode arm.
const TABLE: [Row; 12] = [
    row(DType::F32, "F32", 0, 1, 4),
    row(DType::F16, "F16", 1, 1, 2),
    row(DType::BF16, "BF16", 30, 1, 2),
    row(DType::Q8_0, "Q8_0", 8, 32, 34),
    row(DType::Q4_0, "Q4_0", 2, 32, 18),
    row(DType::Q4_K, "Q4_K", 12, 256, 144),
    row(DType::Q5_K, "Q5_K", 13, 256, 176),
    row(DType::Q6_K, "Q6_K", 14, 256, 210),
    row(DType::IQ4_NL, "IQ4_NL", 20, 32, 18),
    row(DType::IQ4_XS, "IQ4_XS", 23, 256, 136),
    row(DType::IQ3_S, "IQ3_S", 21, 256, 110),
    row(DType::IQ2_XS, "IQ2_XS", 17, 256, 74),
];

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
