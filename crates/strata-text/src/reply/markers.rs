//! Markers in text that may go on, and texts that are joined.

use super::ReplyEvent;

/// Whether a text begins with a marker.
#[derive(PartialEq)]
pub(super) enum Begins {
    Yes,
    /// It is too short to tell.
    Maybe,
    No,
}

/// Whether `text` begins with `marker`, or may if it goes on.
pub(super) fn begins(text: &str, marker: &str) -> Begins {
    match () {
        () if text.starts_with(marker) => Begins::Yes,
        () if marker.starts_with(text) => Begins::Maybe,
        () => Begins::No,
    }
}

/// Bytes of the longest end of `text` that is a proper start of `marker`.
pub(super) fn open_end(text: &str, marker: &str) -> usize {
    let longest = text.len().min(marker.len() - 1);
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&marker.as_bytes()[..n])).unwrap_or(0)
}

pub(super) fn content(events: &mut Vec<ReplyEvent>, text: &str) {
    match events.last_mut() {
        _ if text.is_empty() => {}
        Some(ReplyEvent::Content(last)) => last.push_str(text),
        _ => events.push(ReplyEvent::Content(text.to_owned())),
    }
}

pub(super) fn reasoning(events: &mut Vec<ReplyEvent>, text: &str) {
    match events.last_mut() {
        _ if text.is_empty() => {}
        Some(ReplyEvent::Reasoning(last)) => last.push_str(text),
        _ => events.push(ReplyEvent::Reasoning(text.to_owned())),
    }
}
