//! Selection of cells: block scores, then the best blocks.

pub mod score_table;
pub mod scores;
pub mod topk;
pub mod topk_table;
