//! The op set on the CPU.

pub mod pool;
pub mod simd;
