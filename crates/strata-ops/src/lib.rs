//! The op set: the scalar definitions of every op, to the bit. See NUMERICS.md.
//!
//! Functions here are written over plain slices, `#[inline(always)]` where a backend compiles them again for a
//! wider instruction set: the same source, the same bits. No function allocates; callers own the buffers.

pub mod backend;
pub mod conv;
pub mod gdn;
pub mod hyper;
pub mod math;
pub mod matmul;
pub mod moe;
pub mod norm;
pub mod ple;
pub mod qsa;
pub mod rope;
