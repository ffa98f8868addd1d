//! Where the turns of a rendered prompt end.

use crate::Tokenizer;

const TURN: &str = "<|im_start|>";
const END_OF_TURN: &str = "<|im_end|>";
const SYSTEM: &[u8] = b"system\n";

/// The end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnEnd {
    /// Tokens up to and with the turn's end and the newline behind it.
    pub at: usize,
    /// It is the system turn, which many prompts share.
    pub system: bool,
}

/// The ends of all turns of a prompt, ascending.
///
/// They are looked for in the tokens, not by rendering parts of the conversation: a template may treat the last turn in another way
/// than the same turn further up, or refuse a part. The end-of-turn token (`<|im_end|>`, else the file's `eos`) is a control token,
/// so what stands before it is divided into tokens in the same way whatever follows. A newline behind it counts if it is a token of
/// its own.
pub fn turn_ends(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<TurnEnd> {
    let Some(end) = tokenizer.id_of(END_OF_TURN).or(tokenizer.eos()) else {
        return Vec::new();
    };
    let newline = tokenizer.id_of_bytes(b"\n");
    let mut ends = Vec::new();
    let mut start = 0;
    for (i, _) in ids.iter().enumerate().filter(|(_, id)| **id == end) {
        let at = i + 1 + usize::from(newline.is_some() && ids.get(i + 1).copied() == newline);
        ends.push(TurnEnd { at, system: ends.is_empty() && is_system(tokenizer, &ids[start..i]) });
        start = at;
    }
    ends
}

/// Whether a turn's tokens are `<|im_start|>`, perhaps behind a begin-of-sequence token, and the name of the system.
fn is_system(tokenizer: &Tokenizer, turn: &[u32]) -> bool {
    let turn = turn.strip_prefix(tokenizer.bos().as_slice()).unwrap_or(turn);
    let Some((first, rest)) = turn.split_first() else { return false };
    let bytes = rest.iter().take(SYSTEM.len()).filter_map(|&id| tokenizer.token_bytes(id)).flatten();
    tokenizer.id_of(TURN) == Some(*first) && bytes.take(SYSTEM.len()).eq(SYSTEM)
}
