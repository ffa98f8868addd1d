//! HTTP over the engine's runner.
//!
//! [`generate`] turns requests of any API into prompts and engine requests, and tokens into events; the modules of the APIs give
//! both their wire forms.

pub mod config;
pub mod generate;
pub mod served;

pub use config::ServeOptions;
pub use served::{ModelInfo, Served};
