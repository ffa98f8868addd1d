//! What a plan is made from: sizes only.

/// How rows of the n-gram table are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NgramMode {
    /// Past the page cache where the table is large and the system can, else from its mapped file.
    Auto,
    /// Past the page cache (io_uring, O_DIRECT), or an error.
    Direct,
    /// From the mapped file.
    Mmap,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of a page.
    pub page: u64,
    /// Bytes of a transparent huge page; `None` where they are switched off.
    pub huge_page: Option<u64>,
    /// Bytes of memory that this process may take now.
    pub available: u64,
    /// What sets `available`.
    pub available_by: &'static str,
    /// Bytes that it may lock.
    pub lock_limit: u64,
    /// Anonymous memory may be moved to disk.
    pub swap: bool,
}

/// The experts of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerExperts {
    pub layer: usize,
    /// Experts of the layer.
    pub experts: u64,
    /// Bytes of one expert, all of its matrices.
    pub expert_bytes: u64,
    /// Tensors they are in.
    pub tensors: u64,
}

/// The n-gram table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFacts {
    pub bytes: u64,
    pub row_bytes: u64,
    /// Rows of a token.
    pub per_token: u64,
}

/// A model, and what one sequence on it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// Its bytes are a mapped file; otherwise they are part of the program.
    pub mapped: bool,
    /// Bytes of every matrix as `f32`, if that is how it is run.
    pub as_f32: Option<u64>,
    /// Anonymous memory of the program with the tokenizer, before weights.
    pub program: u64,
    /// Norms, taps and other vectors, which are `f32` in memory.
    pub vectors: u64,
    /// Matrices that every token reads.
    pub dense: u64,
    /// Experts whose gate and up matrices share a tensor, which is copied.
    pub copied: u64,
    /// The token embedding.
    pub embedding: u64,
    pub layers: Vec<LayerExperts>,
    /// Tokens of the context.
    pub context: u64,
    /// Experts a token takes in a layer.
    pub used: u64,
    pub table: Option<TableFacts>,
    /// KV caches for the context.
    pub kv: u64,
    /// Recurrent states, activations and working memory.
    pub work: u64,
    /// Sampler, token history, tables of positions.
    pub sampling: u64,
    /// What the prefix cache may take.
    pub prefix_cache: u64,
}

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Memory to plan with instead of what the machine has.
    pub ram: Option<u64>,
    /// Bytes of experts to keep in memory; `None` is as many as fit.
    pub resident_budget: Option<u64>,
    pub ngram: NgramMode,
    /// Bytes of the cache of table rows.
    pub row_cache: u64,
    /// Lock memory where the system allows it.
    pub lock: bool,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub machine: Machine,
    pub model: ModelFacts,
    pub choices: Choices,
    /// The block size of reads past the page cache, or why there are none.
    pub direct: Result<u64, String>,
}
