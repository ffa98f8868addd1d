//! How much a model is to think, in the words of the APIs.

use crate::fields::At;
use crate::generate::{ChatRequest, RequestError};

/// Takes an effort over. `none` is no thinking; `max`, the most that one API has, is `xhigh`, the most that the others have.
///
/// # Errors
/// It is none of the APIs' words.
pub(crate) fn set(chat: &mut ChatRequest, effort: &At<'_>) -> Result<(), RequestError> {
    chat.effort = match effort.text()? {
        "none" => {
            chat.thinking = Some(false);
            None
        }
        word @ ("minimal" | "low" | "medium" | "high" | "xhigh") => Some(word.to_owned()),
        "max" => Some("xhigh".into()),
        _ => return Err(effort.wrong("\"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"")),
    };
    Ok(())
}
