//! Where weights live. Output never depends on it: a tier decides when bytes are read, not which.
//!
//! `facts` are the sizes of a model and of a machine, [`plan()`] is the pure function from them to a [`Plan`], [`Tiers`] carries it out
//! as the [`Storage`](strata_model::Storage) of a model: dense weights copied to huge pages, experts locked in memory or read ahead
//! from the mapped file, rows of the n-gram table read past the page cache.

mod arena;
mod facts;
mod heap;
mod lookahead;
mod machine;
mod pages;
mod plan;
#[cfg(test)]
mod plan_tests;
mod record;
mod rows;
mod sigbus;
mod size;
mod tiers;
mod usage;
mod worth;

pub use facts::{Choices, Facts, LayerExperts, Machine, ModelFacts, NgramMode, TableFacts};
pub use heap::give_back_large_blocks;
pub use lookahead::ExpertCounts;
pub use machine::{machine, probe_direct};
pub use plan::{Dense, Kind, Line, Plan, TablePlace, plan};
pub use record::Recorder;
pub use rows::RowCounts;
pub use sigbus::explain_sigbus;
pub use size::{SizeError, format_size, parse_size};
pub use tiers::{Report, Tiers};
pub use usage::{Usage, usage};
