//! Sizes and places of tensors.

use strata_quant::DType;

use crate::ErrorKind;
use crate::parse::Header;

/// The next multiple of `alignment` (a power of two below 2^32). Positions in a file are far from the end of u64.
pub(crate) fn align_up(pos: u64, alignment: u64) -> u64 {
    pos.saturating_add(alignment - 1) & !(alignment - 1)
}

/// Bytes of a tensor; no dimensions at all is a single value.
///
/// # Errors
/// A dimension is zero, the number of values or bytes overflows, or a row is not a whole number of blocks.
pub(crate) fn tensor_bytes(name: &str, dtype: DType, dims: &[u64]) -> Result<u64, ErrorKind> {
    let cols = dims.first().copied().unwrap_or(1);
    let block_len = dtype.block_len();
    if !cols.is_multiple_of(block_len as u64) {
        return Err(ErrorKind::RowLength { tensor: name.to_owned(), dtype, block_len, cols });
    }
    let size = || {
        // the count of values itself must fit, as callers multiply dimensions
        let values = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        (values / block_len as u64).checked_mul(dtype.block_bytes() as u64).filter(|&n| n > 0)
    };
    size().ok_or_else(|| ErrorKind::Dims { tensor: name.to_owned(), dims: dims.to_vec(), dtype })
}

/// Checks that every tensor of a file of `file_len` bytes is aligned, inside the file and apart from the others.
pub(crate) fn check_places(header: &Header, file_len: u64) -> Result<(), ErrorKind> {
    let available = file_len.saturating_sub(header.data_start);
    let mut by_offset: Vec<_> = header.tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    let mut previous: Option<(&str, u64)> = None;
    for t in by_offset {
        let tensor = || t.name.clone();
        if !t.offset.is_multiple_of(header.alignment) {
            return Err(ErrorKind::Unaligned { tensor: tensor(), alignment: header.alignment, offset: t.offset });
        }
        let Some(end) = t.offset.checked_add(t.byte_len).filter(|&end| end <= available) else {
            return Err(ErrorKind::OutOfFile { tensor: tensor(), offset: t.offset, byte_len: t.byte_len, available });
        };
        if let Some((name, previous_end)) = previous
            && t.offset < previous_end
        {
            return Err(ErrorKind::Overlap { tensor: tensor(), offset: t.offset, previous: name.to_owned(), previous_end });
        }
        previous = Some((&t.name, end));
    }
    Ok(())
}
