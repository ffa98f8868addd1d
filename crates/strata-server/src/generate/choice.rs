//! From the tokens of one choice to its events.

use super::event::{ChatEvent, FinishReason, TokenInfo};
use super::prompt::ReadPrompt;
use super::request::AnswerOptions;
use crate::app::unique;
use crate::served::Served;
use std::collections::VecDeque;
use std::sync::Arc;
use strata_engine::Token;
use strata_text::{ReplyEvent, ReplyParser, ReplyStart, StopStrings, StopStringsError, StreamDecoder, Tokenizer};

/// What begins the thinking, where the prompt has not, and what ends it.
const THINK: &str = "<think>";
const END_THINK: &str = "</think>";

/// One choice while it is drawn: tokens become text, text up to a stop string becomes reasoning, content and calls.
pub(super) struct Choice {
    number: u32,
    tokenizer: Arc<Tokenizer>,
    decoder: StreamDecoder,
    stops: StopStrings,
    stop_texts: Vec<String>,
    /// Tokens that end the answer and are not part of its text.
    stop_ids: Vec<u32>,
    /// Takes the answer to a conversation apart.
    parser: Option<ReplyParser>,
    parallel: bool,
    think: Option<u32>,
    end_think: Option<u32>,
    thinking: bool,
    /// Content or a call has come: markers of thinking are text from then on.
    answering: bool,
    /// No content has come since the thinking ended.
    after_thinking: bool,
    logprobs: bool,
    /// Tokens whose text has not come out.
    pending: Vec<TokenInfo>,
    /// The answer ended before its tokens did; nothing more is taken.
    pub cut: Option<FinishReason>,
    /// The last event is out.
    pub finished: bool,
    pub generated: usize,
    pub reasoning: usize,
}

impl Choice {
    pub fn new(served: &Served, number: u32, prompt: &ReadPrompt, options: &AnswerOptions) -> Result<Choice, StopStringsError> {
        let reply = prompt.reply.as_ref();
        Ok(Choice {
            number,
            tokenizer: Arc::clone(&served.tokenizer),
            decoder: StreamDecoder::new(Arc::clone(&served.tokenizer), true),
            stops: StopStrings::new(&options.stop)?,
            stop_texts: options.stop.clone(),
            stop_ids: if options.ignore_eos { Vec::new() } else { served.tokenizer.stop_ids().to_vec() },
            parser: reply.map(|r| ReplyParser::new(r.start, r.calls, r.types.clone())),
            parallel: reply.is_none_or(|r| r.parallel),
            think: served.tokenizer.id_of(THINK),
            end_think: served.tokenizer.id_of(END_THINK),
            answering: reply.is_none(),
            thinking: reply.is_some_and(|r| r.start == ReplyStart::Reasoning),
            after_thinking: false,
            logprobs: options.params.logprobs.is_some(),
            pending: Vec::new(),
            cut: None,
            finished: false,
            generated: 0,
            reasoning: 0,
        })
    }

    /// Takes a token.
    pub fn token(&mut self, token: &Token, out: &mut VecDeque<ChatEvent>) {
        if self.cut.is_some() || self.finished {
            return;
        }
        self.generated += 1;
        self.thinking |= !self.answering && Some(token.id) == self.think;
        self.reasoning += usize::from(self.thinking);
        if self.stop_ids.contains(&token.id) {
            return;
        }
        if self.logprobs {
            self.pending.push(info(&self.tokenizer, token));
        }
        let text = self.decoder.push(token.id);
        let found = self.stops.push(&text);
        self.text(&found.text, out);
        if let Some(i) = found.matched {
            self.cut.get_or_insert(FinishReason::StopString(self.stop_texts[i].clone()));
        }
        if self.thinking && Some(token.id) == self.end_think {
            self.end_of_thinking();
        }
    }

    /// Ends the text: what was held back is part of it, unless the answer was cut.
    pub fn end(&mut self, reason: FinishReason, out: &mut VecDeque<ChatEvent>) -> FinishReason {
        self.finished = true;
        if !matches!(self.cut, Some(FinishReason::StopString(_))) {
            let mut rest = self.stops.push(&self.decoder.finish()).text;
            if let Ok(none) = StopStrings::new::<&str>(&[]) {
                rest.push_str(&std::mem::replace(&mut self.stops, none).finish());
            }
            self.text(&rest, out);
        }
        let calls = self.parser.as_ref().map_or(0, ReplyParser::calls);
        let last = self.parser.take().map(ReplyParser::finish).unwrap_or_default();
        last.into_iter().for_each(|event| self.event(event, out));
        match self.cut.take().unwrap_or(reason) {
            FinishReason::Stop if calls > 0 => FinishReason::ToolCalls,
            reason => reason,
        }
    }

    fn text(&mut self, text: &str, out: &mut VecDeque<ChatEvent>) {
        if text.is_empty() || self.cut.is_some() {
            return;
        }
        match &mut self.parser {
            None => self.event(ReplyEvent::Content(text.to_owned()), out),
            Some(parser) => parser.push(text).into_iter().for_each(|event| self.event(event, out)),
        }
    }

    fn event(&mut self, event: ReplyEvent, out: &mut VecDeque<ChatEvent>) {
        let choice = self.number;
        // the answer was cut between two events of one text
        if self.cut == Some(FinishReason::ToolCalls) {
            return;
        }
        match event {
            ReplyEvent::Reasoning(text) => {
                self.thinking = true;
                self.pending.clear();
                out.push_back(ChatEvent::Reasoning { choice, text });
            }
            ReplyEvent::Content(text) => {
                self.end_of_thinking();
                self.answering = true;
                let logprobs = self.shown(&text);
                out.push_back(ChatEvent::Content { choice, text, logprobs });
            }
            ReplyEvent::ToolCall { index, name } => {
                self.end_of_thinking();
                self.answering = true;
                self.pending.clear();
                out.push_back(ChatEvent::ToolCall { choice, index, id: unique("call_"), name });
            }
            ReplyEvent::Arguments { index, delta } => {
                self.pending.clear();
                out.push_back(ChatEvent::ToolArguments { choice, index, delta });
            }
            ReplyEvent::ToolCallEnd { .. } if !self.parallel => self.cut = Some(FinishReason::ToolCalls),
            ReplyEvent::ToolCallEnd { .. } => {}
        }
    }

    fn end_of_thinking(&mut self) {
        if std::mem::take(&mut self.thinking) {
            self.pending.clear();
            self.after_thinking = true;
        }
    }

    /// The tokens of a content that begins with `text`. Newlines between thinking and content belong to neither.
    fn shown(&mut self, text: &str) -> Vec<TokenInfo> {
        let mut tokens = std::mem::take(&mut self.pending);
        if std::mem::take(&mut self.after_thinking) && !text.starts_with('\n') {
            let newlines = tokens.iter().take_while(|t| t.bytes.iter().all(|b| *b == b'\n')).count();
            tokens.drain(..newlines);
        }
        tokens
    }
}

fn info(tokenizer: &Tokenizer, token: &Token) -> TokenInfo {
    let one = |id: u32, logprob: f32| {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default().to_vec();
        TokenInfo { id, text: String::from_utf8_lossy(&bytes).into_owned(), bytes, logprob, top: Vec::new() }
    };
    let mut info = one(token.id, token.logprob.unwrap_or(f32::NEG_INFINITY));
    info.top = token.top.iter().map(|t| one(t.token, t.logprob)).collect();
    info
}
