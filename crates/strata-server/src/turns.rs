//! A conversation put together piece by piece, as APIs with content blocks or items give it, into the messages of a chat template.

use serde_json::{Map, Value, json};

/// Gathers pieces into turns. Pieces of one side that follow each other are one turn, joined by an empty line. Templates show the
/// results of tools without their ids, so results are put in the order of the calls, and before what the user says with them.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    system: Vec<String>,
    messages: Vec<Value>,
    assistant: Option<Assistant>,
    /// Number of the call in the assistant's turn, and what it gave.
    results: Vec<(usize, String)>,
    user: Option<Vec<String>>,
}

#[derive(Debug, Default)]
struct Assistant {
    reasoning: Vec<String>,
    text: Vec<String>,
    calls: Vec<(String, Value)>,
}

/// Why a result of a tool has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadResult {
    /// The assistant's last turn made no such call.
    Unknown,
    /// The call has a result.
    Twice,
}

impl Turns {
    /// Instructions. Templates have one system turn, at the start: later ones are said by the user.
    pub fn system(&mut self, text: &str) {
        if self.messages.is_empty() && self.assistant.is_none() && self.user.is_none() {
            self.system.push(text.to_owned());
        } else {
            self.user(text);
        }
    }

    pub fn user(&mut self, text: &str) {
        self.user.get_or_insert_default().push(text.to_owned());
    }

    pub fn reasoning(&mut self, text: &str) {
        self.assistant().reasoning.push(text.to_owned());
    }

    /// Text of the assistant.
    pub fn said(&mut self, text: &str) {
        self.assistant().text.push(text.to_owned());
    }

    /// A call of a tool. `arguments` is an object where its JSON is one.
    pub fn called(&mut self, id: &str, name: &str, arguments: Value) {
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        self.assistant().calls.push((id.to_owned(), call));
    }

    /// The result of a call of the assistant's last turn.
    ///
    /// # Errors
    /// There is no such call, or it has a result.
    pub fn result(&mut self, call: &str, text: String) -> Result<(), BadResult> {
        let calls = self.assistant.as_ref().map_or(&[][..], |a| &a.calls);
        let with_id = || calls.iter().enumerate().filter(|(_, (id, _))| id == call).map(|(i, _)| i);
        // ids should be unique in a turn; where they are not, results go to their calls in order
        let free = with_id().find(|i| self.results.iter().all(|(j, _)| j != i));
        match free {
            Some(i) => self.results.push((i, text)),
            None if with_id().next().is_some() => return Err(BadResult::Twice),
            None => return Err(BadResult::Unknown),
        }
        Ok(())
    }

    /// True if the last word is the assistant's.
    pub fn ends_with_assistant(&self) -> bool {
        self.assistant.is_some() && self.results.is_empty() && self.user.is_none()
    }

    /// The messages, in the form of OpenAI's chat completions with arguments as objects.
    pub fn finish(mut self) -> Vec<Value> {
        self.close();
        let mut messages = self.messages;
        let system = join(&self.system);
        if !system.is_empty() {
            messages.insert(0, json!({"role": "system", "content": system}));
        }
        messages
    }

    /// The assistant's open turn; a new one if somebody else spoke since.
    fn assistant(&mut self) -> &mut Assistant {
        if !self.results.is_empty() || self.user.is_some() {
            self.close();
        }
        self.assistant.get_or_insert_default()
    }

    /// Ends the open turns of both sides.
    fn close(&mut self) {
        if let Some(a) = self.assistant.take() {
            let mut message = Map::new();
            message.insert("role".into(), "assistant".into());
            let reasoning = join(&a.reasoning);
            if !reasoning.is_empty() {
                message.insert("reasoning_content".into(), reasoning.into());
            }
            message.insert("content".into(), join(&a.text).into());
            if !a.calls.is_empty() {
                message.insert("tool_calls".into(), a.calls.iter().map(|(_, call)| call.clone()).collect());
            }
            self.messages.push(message.into());
            self.results.sort_by_key(|(i, _)| *i);
            for (i, text) in self.results.drain(..) {
                self.messages.push(json!({"role": "tool", "tool_call_id": a.calls[i].0, "content": text}));
            }
        }
        if let Some(pieces) = self.user.take() {
            self.messages.push(json!({"role": "user", "content": join(&pieces)}));
        }
    }
}

/// Pieces of text with an empty line between those that are not empty.
pub(crate) fn join<S: AsRef<str>>(pieces: &[S]) -> String {
    let pieces: Vec<&str> = pieces.iter().map(AsRef::as_ref).filter(|p| !p.is_empty()).collect();
    pieces.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_calls_and_before_the_users_words() {
        let mut turns = Turns::default();
        turns.system("S1");
        turns.system("S2");
        turns.user("go");
        turns.reasoning("hm");
        turns.called("a", "f", json!({"x": 1}));
        turns.called("b", "g", json!({}));
        turns.user("and hurry");
        turns.result("b", "second".into()).unwrap();
        turns.result("a", "first".into()).unwrap();
        turns.said("done");
        let messages = turns.finish();
        let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let expected = json!([
            {"role": "system", "content": "S1\n\nS2"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "reasoning_content": "hm", "content": "", "tool_calls": [call("a", "f", json!({"x": 1})), call("b", "g", json!({}))]},
            {"role": "tool", "tool_call_id": "a", "content": "first"},
            {"role": "tool", "tool_call_id": "b", "content": "second"},
            {"role": "user", "content": "and hurry"},
            {"role": "assistant", "content": "done"},
        ]);
        assert_eq!(Value::Array(messages), expected);
    }

    #[test]
    fn a_result_needs_a_call_of_the_last_turn_and_is_the_only_one() {
        let mut turns = Turns::default();
        assert_eq!(turns.result("a", String::new()), Err(BadResult::Unknown));
        turns.called("a", "f", json!({}));
        turns.called("a", "f", json!({}));
        turns.result("a", "1".into()).unwrap();
        turns.result("a", "2".into()).unwrap();
        assert_eq!(turns.result("a", "3".into()), Err(BadResult::Twice));
        assert!(!turns.ends_with_assistant());
        turns.said("next");
        assert!(turns.ends_with_assistant());
        assert_eq!(turns.result("a", String::new()), Err(BadResult::Unknown));
        let contents: Vec<_> = turns.finish().iter().map(|m| m["content"].as_str().unwrap().to_owned()).collect();
        assert_eq!(contents, ["", "1", "2", "next"]);
    }

    #[test]
    fn a_late_system_text_is_said_by_the_user() {
        let mut turns = Turns::default();
        turns.user("a");
        turns.system("b");
        assert_eq!(turns.finish(), [json!({"role": "user", "content": "a\n\nb"})]);
    }
}
