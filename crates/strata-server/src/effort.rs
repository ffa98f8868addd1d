//! How much a model is to think, in the words of the APIs.

use crate::fields::At;
use crate::generate::{ChatRequest, RequestError};

/// Takes an effort over. Templates know `low`, `medium` and `xhigh`, and have one of their own where none is named: `high` leaves it
/// to them.
///
/// # Errors
/// It is none of the APIs' words.
pub(crate) fn set(chat: &mut ChatRequest, effort: &At<'_>) -> Result<(), RequestError> {
    chat.effort = match effort.text()? {
        "none" => {
            chat.thinking = Some(false);
            None
        }
        "minimal" | "low" => Some("low".into()),
        "medium" => Some("medium".into()),
        "high" => None,
        "xhigh" | "max" => Some("xhigh".into()),
        _ => return Err(effort.wrong("\"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"")),
    };
    Ok(())
}
