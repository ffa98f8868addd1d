//! What an answer must be, as a grammar that the engine enforces while it draws.

use super::error::RequestError;
use super::prompt::ReadPrompt;
use super::request::{AnswerOptions, Format, ToolChoice};
use crate::served::Served;
use strata_engine::Constraint;
use strata_grammar::{Body, Choice, GrammarError, Spec, Tools};
use strata_text::ReplyStart;

/// The constraint of one choice; `None` where tokens are free.
///
/// # Errors
/// A schema or grammar is not usable, or is asked for beside tools.
pub(super) fn constraint(
    served: &Served,
    prompt: &ReadPrompt,
    options: &AnswerOptions,
) -> Result<Option<Box<dyn Constraint>>, RequestError> {
    let offered = prompt.reply.as_ref().and_then(|r| r.offered.as_ref());
    let body = match (&options.format, offered) {
        (Format::Text, None) => return Ok(None),
        (Format::Text, Some((tools, choice))) => match (served.calls, choice) {
            (Some(format), choice) => {
                let choice = match choice {
                    ToolChoice::Auto | ToolChoice::None => Choice::Auto,
                    ToolChoice::Required => Choice::Required,
                    ToolChoice::Named(name) => Choice::Named(name.clone()),
                };
                let parallel = prompt.reply.as_ref().is_none_or(|r| r.parallel);
                Body::Tools(Tools { format, tools: tools.clone(), choice, parallel })
            }
            (None, ToolChoice::Auto | ToolChoice::None) => return Ok(None),
            (None, _) => return Err(RequestError::field("tool_choice", "auto: this model's template has no calls", "a forced call")),
        },
        (_, Some(_)) => return Err(RequestError::field("response_format", "text, beside tools", "another form")),
        (Format::JsonObject, None) => Body::JsonObject,
        (Format::JsonSchema(schema), None) => Body::JsonSchema(schema.clone()),
        (Format::Lark(grammar), None) => Body::Lark(grammar.clone()),
    };
    // a tool may be called or not: one whose schema is past what can be enforced is offered all the same
    let free = matches!(&body, Body::Tools(t) if t.choice == Choice::Auto);
    let after_thinking = prompt.reply.as_ref().is_some_and(|r| r.start == ReplyStart::Reasoning);
    let grammars = served.grammars.as_ref().map_err(|e| RequestError::Grammar(e.clone()))?;
    match grammars.compile(&Spec { body, after_thinking }) {
        Ok(constraint) => Ok(Some(constraint)),
        Err(GrammarError::Invalid { .. } | GrammarError::Limit { .. }) if free => Ok(None),
        Err(e) => Err(RequestError::Grammar(e)),
    }
}
