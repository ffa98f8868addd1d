//! Selection of cells: block scores, then the best blocks.

pub mod score_table;
pub mod scores;
