//! HTTP over the engine's runner.
//!
//! [`generate`] turns requests of any API into prompts and engine requests, and tokens into events; `openai` and its siblings
//! give both their wire forms. `guard` stands before all routes. [`Server`] opens the socket, and says that it is loading until
//! [`Server::ready`] gives it a model.

mod anthropic;
mod app;
pub mod config;
mod effort;
mod failure;
mod fields;
pub mod generate;
mod guard;
mod metrics;
mod openai;
mod page;
mod responses;
mod segment;
mod served;
mod server;
mod slots;
mod sse;
mod status;
mod tokenize;
mod tools;
mod turns;

pub use config::ServeOptions;
pub use served::{ModelInfo, warm};
pub use server::{ServeError, Server};
