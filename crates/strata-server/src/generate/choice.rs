//! From the tokens of one choice to its events.

use super::event::{ChatEvent, FinishReason, TokenInfo};
use super::request::AnswerOptions;
use crate::served::Served;
use std::collections::VecDeque;
use std::sync::Arc;
use strata_engine::Token;
use strata_text::{StopStrings, StopStringsError, StreamDecoder, Tokenizer};

/// One choice while it is drawn.
pub(super) struct Choice {
    number: u32,
    tokenizer: Arc<Tokenizer>,
    decoder: StreamDecoder,
    stops: StopStrings,
    texts: Vec<String>,
    /// Tokens that end the answer and are not part of its text.
    stop_ids: Vec<u32>,
    logprobs: bool,
    /// Tokens whose text is not certain yet.
    pending: Vec<TokenInfo>,
    /// A stop string was found.
    pub stopped: Option<String>,
    /// The last event is out.
    pub finished: bool,
    pub generated: usize,
    pub reasoning: usize,
}

impl Choice {
    pub fn new(served: &Served, number: u32, options: &AnswerOptions) -> Result<Choice, StopStringsError> {
        let stop_ids = if options.ignore_eos { Vec::new() } else { served.tokenizer.stop_ids().to_vec() };
        Ok(Choice {
            number,
            tokenizer: Arc::clone(&served.tokenizer),
            decoder: StreamDecoder::new(Arc::clone(&served.tokenizer), true),
            stops: StopStrings::new(&options.stop)?,
            texts: options.stop.clone(),
            stop_ids,
            logprobs: options.params.logprobs.is_some(),
            pending: Vec::new(),
            stopped: None,
            finished: false,
            generated: 0,
            reasoning: 0,
        })
    }

    /// Takes a token. Nothing more is to come once `stopped` is set.
    pub fn token(&mut self, token: &Token, out: &mut VecDeque<ChatEvent>) {
        if self.stopped.is_some() || self.finished {
            return;
        }
        self.generated += 1;
        if self.stop_ids.contains(&token.id) {
            return;
        }
        if self.logprobs {
            self.pending.push(info(&self.tokenizer, token));
        }
        let text = self.decoder.push(token.id);
        let found = self.stops.push(&text);
        self.text(&found.text, out);
        self.stopped = found.matched.map(|i| self.texts[i].clone());
    }

    /// Ends the text: what was held back is part of it.
    pub fn end(&mut self, reason: FinishReason, out: &mut VecDeque<ChatEvent>) -> FinishReason {
        self.finished = true;
        if let Some(text) = self.stopped.take() {
            return FinishReason::StopString(text);
        }
        let mut rest = self.stops.push(&self.decoder.finish()).text;
        if let Ok(none) = StopStrings::new::<&str>(&[]) {
            rest.push_str(&std::mem::replace(&mut self.stops, none).finish());
        }
        self.text(&rest, out);
        reason
    }

    fn text(&mut self, text: &str, out: &mut VecDeque<ChatEvent>) {
        if !text.is_empty() {
            out.push_back(ChatEvent::Content { choice: self.number, text: text.to_owned(), logprobs: std::mem::take(&mut self.pending) });
        }
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
