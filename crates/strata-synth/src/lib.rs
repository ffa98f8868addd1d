//! Synthetic `qwen4exp` models: valid GGUF files of any size with random weights, streamed to disk or held in memory.
//!
//! For benchmarks, capacity tests and exactness runs over every format. Amplitudes are chosen by fan-in so that residual
//! and logits stay of order one however deep the model is; codes are random bits, so no block is like another. The bytes
//! depend on the shape, the types and the seed alone: not on threads, nor on whether they go to a file or to memory.
//!
//! ```
//! # fn main() -> Result<(), strata_synth::SynthError> {
//! let recipe = strata_synth::Recipe::parse("refmodel:Q4_K,layers=2,experts=4")?;
//! let gguf = strata_synth::in_memory(&recipe, "synthetic", 1 << 30)?;
//! assert!(gguf.tensor("blk.1.ffn_down_exps.weight").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Rooms: `shape` holds sizes and presets, `recipe` adds types and the seed, `plan` lists keys and tensors, `scales` asks
//! formats where their scales are, `fill` makes bytes, `write` sends them somewhere.

mod error;
mod fill;
mod hash;
mod plan;
mod recipe;
mod scales;
mod shape;
mod tokens;
mod write;

pub use error::SynthError;
pub use plan::Plan;
pub use recipe::{Recipe, fallback};
pub use shape::{PRESETS, Shape};
pub use write::{Written, in_memory, write};
