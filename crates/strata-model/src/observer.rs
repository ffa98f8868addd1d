//! A window on a forward pass, for tests and reports.

/// Receives what a forward pass decides. Every method has an empty default.
pub trait Observer {
    /// Table rows of the n-gram module for the token at `position`.
    fn ngram_rows(&mut self, position: usize, rows: &[u64]) {
        let _ = (position, rows);
    }

    /// The residual `[streams, hidden]` after `layer`.
    fn residual(&mut self, layer: usize, position: usize, wide: &[f32]) {
        let _ = (layer, position, wide);
    }

    /// Router logits of a row, and the experts taken with their weights, in rank order.
    fn experts(&mut self, layer: usize, position: usize, logits: &[f32], ids: &[u32], weights: &[f32]) {
        let _ = (layer, position, logits, ids, weights);
    }

    /// Blocks that the query at `position` selected (ascending) and the score of every complete block; not called
    /// where all cells are taken.
    fn selection(&mut self, layer: usize, position: usize, blocks: &[u32], scores: &[f32]) {
        let _ = (layer, position, blocks, scores);
    }
}
