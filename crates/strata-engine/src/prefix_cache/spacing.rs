//! How far apart checkpoints are worth keeping.

/// Distances between checkpoints, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spacing {
    /// Within a prompt, beside the places that are marked; `None`: nowhere.
    pub every: Option<usize>,
    /// A checkpoint nearer to the one before it is not made: reading these tokens again costs less than keeping it.
    pub least: usize,
}

/// Lengths at which prompts are cut are multiples of this, so that prompts that begin alike are cut alike.
const UNIT: usize = 256;
/// The least `every`: nearer ones would mostly copy.
const NEAREST: usize = 1024;

/// The distances for a budget of bytes: a sequence that fills the context may take half of it, with its cells (`cell_bytes` each)
/// and the states of all its checkpoints (`state_bytes` each); the other half is for other sequences. A checkpoint of few tokens
/// is skipped within a 32nd of that distance, 16 to 256 tokens: one in the budget's place is worth more.
pub fn spacing(budget: u64, state_bytes: u64, cell_bytes: u64, context: usize) -> Spacing {
    let room = (budget / 2).saturating_sub(cell_bytes.saturating_mul(context as u64));
    let most = room / state_bytes.max(1);
    let every = (context as u64).checked_div(most).map(|n| (n as usize).max(NEAREST).next_multiple_of(UNIT));
    Spacing { every: every.filter(|n| *n < context), least: every.map_or(UNIT, |n| (n / 32).clamp(16, UNIT)) }
}
