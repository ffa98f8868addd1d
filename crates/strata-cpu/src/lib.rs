//! The op set on the CPU.

pub mod backend;
pub mod bench;
pub mod cores;
pub mod matmul;
pub mod parity;
pub mod pool;
pub mod qsa;
pub mod simd;
