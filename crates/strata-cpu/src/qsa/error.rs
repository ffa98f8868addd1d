//! Errors of the attention layer.

/// Why a shape, a cache or a call was refused.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum QsaError {
    /// The model asks for an attention geometry that has no kernel.
    #[error("attention {field} is {found}; supported: {supported}")]
    Unsupported { field: &'static str, found: usize, supported: &'static str },
    /// Sizes that overflow or cannot be allocated.
    #[error("a KV cache of {cells} cells ({kind}, {kv_heads} KV heads) does not fit in memory")]
    TooLarge { cells: usize, kind: &'static str, kv_heads: usize },
    /// More cells than the cache holds.
    #[error("the KV cache holds {capacity} cells; {len} are used and {more} more were appended")]
    Full { capacity: usize, len: usize, more: usize },
    /// A cut that the cache cannot make.
    #[error("cannot cut the KV cache of {len} cells to {to}: the raw index keys reach back to cell {raw_from} only")]
    Cut { len: usize, to: usize, raw_from: usize },
    /// A position outside the rope table.
    #[error("position {position} is outside the rope table of {positions} positions")]
    Position { position: usize, positions: usize },
    /// A buffer of the wrong length.
    #[error("{field} has {found} values, expected {expected}")]
    Length { field: &'static str, found: usize, expected: usize },
    /// Query rows beyond the cells of the cache.
    #[error("rows up to position {last} were asked for; the cache has {len} cells")]
    Beyond { last: usize, len: usize },
    /// Sequences that would write the same output row.
    #[error("two sequences have output row {row}")]
    Overlap { row: usize },
    /// The scratch was made for another geometry.
    #[error("the attention scratch was made for another layer geometry")]
    OtherShape,
    /// The scratch was made for less.
    #[error("the attention scratch was made for {field} {made}, {asked} asked for")]
    Scratch { field: &'static str, made: usize, asked: usize },
}

/// Checks one buffer length.
pub(super) fn check_len(field: &'static str, found: usize, expected: usize) -> Result<(), QsaError> {
    if found == expected { Ok(()) } else { Err(QsaError::Length { field, found, expected }) }
}
