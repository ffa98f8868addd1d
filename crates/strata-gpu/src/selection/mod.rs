//! Selection of cells: block scores, then the best blocks.

pub mod topk;
pub mod topk_table;
