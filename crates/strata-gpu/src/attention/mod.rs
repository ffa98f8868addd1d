//! Attention over selected cells on a device: KV pools, appends, decode.

mod append;
#[cfg(test)]
mod attend_tests;
mod decode;
mod pool;
mod prompt;
mod table;

pub use append::{IndexKeys, append_cells, append_index_keys};
pub use decode::{DecodeScratch, Selection, attend_decode, chunk_kernels, launch_chunks, launch_merge};
pub use pool::{KvPool, PageTable};
pub use prompt::{PROMPT_MAX_GROUP, attend_prompt, inexact_prompt_kernel, launch_prompt, prompt_kernel, prompt_kernel_on};
pub use table::{AttentionTable, attend};

use crate::driver::Grid;
use crate::error::{GpuError, Result};

/// Query heads of one KV head at most.
pub const MAX_GROUP: usize = 12;

/// A grid without a cluster or dynamic shared memory.
fn grid(groups: [usize; 3], threads: u32) -> Result<Grid> {
    let size = |n: usize| u32::try_from(n).map_err(|_| refuse("grid", "fewer than 2^32 workgroups", n));
    Ok(Grid { groups: [size(groups[0])?, size(groups[1])?, size(groups[2])?], threads, shared: 0, cluster: 1 })
}

fn refuse(kernel: &str, expected: impl Into<String>, found: impl ToString) -> GpuError {
    GpuError::Launch { kernel: kernel.into(), expected: expected.into(), found: found.to_string() }
}

/// Checks that a buffer has room.
fn need(kernel: &str, what: &str, have: usize, want: usize) -> Result<()> {
    if have < want { Err(refuse(kernel, format!("{what} of at least {want} values"), have)) } else { Ok(()) }
}
