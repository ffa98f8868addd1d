//! The answers to one request, as they come.

use super::choice::Choice;
use super::constraint::constraint;
use super::error::RequestError;
use super::event::{ChatEvent, FinishReason, TokenInfo, Usage};
use super::prompt::ReadPrompt;
use super::request::AnswerOptions;
use crate::metrics::Metrics;
use crate::served::Served;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use strata_engine::{Generate, Kind, Reason, Request, RequestId, Sink, Update};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A stream of the events of all choices. Dropped, it cancels what has not ended.
pub struct Answers {
    served: Arc<Served>,
    updates: UnboundedReceiver<(usize, Update)>,
    choices: Vec<Choice>,
    ids: Vec<RequestId>,
    events: VecDeque<ChatEvent>,
    prompt: usize,
    started: bool,
    open: usize,
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub reasoning: String,
    pub content: String,
    pub logprobs: Vec<TokenInfo>,
    pub tool_calls: Vec<ToolCall>,
    /// `None` only before its end.
    pub reason: Option<FinishReason>,
    pub usage: Usage,
}

/// A whole call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// Times the updates of one choice and hands them on. What the channel holds is bounded by the context: no answer is longer.
struct ToChannel {
    choice: usize,
    to: UnboundedSender<(usize, Update)>,
    metrics: Arc<Metrics>,
    came: Instant,
    last: Option<Instant>,
}

impl Sink for ToChannel {
    fn send(&mut self, update: Update) -> bool {
        match &update {
            Update::Started { waited, .. } => self.metrics.queued(*waited),
            Update::Token(_) => {
                let now = Instant::now();
                match self.last.replace(now) {
                    None => self.metrics.first_token(now - self.came),
                    Some(last) => self.metrics.next_token(now - last),
                }
            }
            Update::Ended { usage, .. } => self.metrics.ended(self.came.elapsed(), usage),
            Update::Read { .. } | Update::Embedding(_) => {}
        }
        self.to.send((self.choice, update)).is_ok()
    }
}

impl Answers {
    /// Hands one request for each choice to the engine.
    ///
    /// # Errors
    /// An option is out of range, or the queue has no room for all choices: then none is answered.
    pub fn start(served: &Arc<Served>, prompts: Vec<ReadPrompt>, options: &AnswerOptions) -> Result<Answers, RequestError> {
        let (to, updates) = unbounded_channel();
        let came = Instant::now();
        let all = prompts.len() as u32 * options.n;
        let mut answers = Answers {
            served: Arc::clone(served),
            updates,
            choices: (0..all).map(|i| Choice::new(served, i, &prompts[(i / options.n) as usize], options)).collect::<Result<_, _>>()?,
            ids: Vec::new(),
            events: VecDeque::new(),
            prompt: prompts.iter().map(|p| p.ids.len()).sum(),
            started: false,
            open: all as usize,
        };
        let context = served.runner.facts().context;
        for (prompt, choice) in prompts.iter().flat_map(|p| (0..options.n).map(move |choice| (p, choice))) {
            let room = context.saturating_sub(prompt.ids.len());
            let generate = Generate {
                params: options.params,
                choice,
                max_tokens: options.max_tokens.unwrap_or(room).min(room).max(1),
                stop: if options.ignore_eos { Vec::new() } else { served.tokenizer.stop_ids().to_vec() },
                bias: options.bias.clone(),
                constraint: constraint(served, prompt, options)?,
            };
            let request = Request {
                prompt: prompt.ids.clone(),
                kind: Kind::Generate(generate),
                deadline: options.deadline,
                marks: prompt.marks.clone(),
                use_cache: options.use_cache,
            };
            // an early return drops `answers`, which cancels the choices before
            let sink = ToChannel { choice: answers.ids.len(), to: to.clone(), metrics: Arc::clone(&served.metrics), came, last: None };
            answers.ids.push(served.runner.submit(request, Box::new(sink))?);
        }
        Ok(answers)
    }

    /// Tokens of all prompts.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt
    }

    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<ChatEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Answers::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ChatEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.open == 0 {
                return Poll::Ready(None);
            }
            match ready!(self.updates.poll_recv(cx)) {
                Some((choice, update)) => self.take(choice, update),
                // the runner's thread is gone without a last word
                None => (0..self.choices.len()).for_each(|c| self.finish(c, FinishReason::Stopping, Usage::default())),
            }
        }
    }

    /// All answers, whole.
    pub async fn collect(mut self) -> Vec<Answer> {
        let mut all = vec![Answer::default(); self.choices.len()];
        while let Some(event) = self.next().await {
            match event {
                ChatEvent::Started { .. } | ChatEvent::Begun { .. } | ChatEvent::Progress { .. } => {}
                ChatEvent::Reasoning { choice, text } => all[choice as usize].reasoning += &text,
                ChatEvent::Content { choice, text, logprobs } => {
                    let a = &mut all[choice as usize];
                    a.content += &text;
                    a.logprobs.extend(logprobs);
                }
                ChatEvent::ToolCall { choice, id, name, .. } => {
                    all[choice as usize].tool_calls.push(ToolCall { id, name, arguments: String::new() });
                }
                ChatEvent::ToolArguments { choice, index, delta } => {
                    if let Some(call) = all[choice as usize].tool_calls.get_mut(index) {
                        call.arguments += &delta;
                    }
                }
                ChatEvent::Finished { choice, reason, usage } => {
                    let a = &mut all[choice as usize];
                    (a.reason, a.usage) = (Some(reason), usage);
                }
            }
        }
        all
    }

    fn take(&mut self, choice: usize, update: Update) {
        match update {
            Update::Started { cached, .. } => {
                if !std::mem::replace(&mut self.started, true) {
                    self.events.push_back(ChatEvent::Started { prompt_tokens: self.prompt, cached });
                }
                self.events.push_back(ChatEvent::Begun { choice: choice as u32 });
            }
            Update::Read { read, prompt } if choice == 0 => self.events.push_back(ChatEvent::Progress { read, prompt }),
            Update::Read { .. } | Update::Embedding(_) => {}
            Update::Token(token) => {
                let c = &mut self.choices[choice];
                c.token(&token, &mut self.events);
                if c.cut.is_some() {
                    self.served.runner.cancel(self.ids[choice]);
                }
            }
            Update::Ended { reason, usage } => {
                let reason = match reason {
                    Reason::Stop => FinishReason::Stop,
                    Reason::Length => FinishReason::Length,
                    Reason::Cancelled => FinishReason::Cancelled,
                    Reason::Deadline => FinishReason::Deadline,
                    Reason::Stopped => FinishReason::Stopping,
                    Reason::Failed(e) => FinishReason::Failed(e.to_string()),
                };
                let c = &self.choices[choice];
                let usage = Usage {
                    prompt: usage.prompt,
                    cached: usage.cached,
                    // tokens behind a stop string are not part of the answer
                    generated: c.generated,
                    reasoning: c.reasoning,
                    drafted: usage.drafted,
                    accepted: usage.accepted,
                    waited: usage.waited,
                    prefill: usage.prefill,
                    decode: usage.decode,
                };
                self.finish(choice, reason, usage);
            }
        }
    }

    fn finish(&mut self, choice: usize, reason: FinishReason, usage: Usage) {
        let c = &mut self.choices[choice];
        if !c.finished {
            let reason = c.end(reason, &mut self.events);
            self.served.metrics.finished(&reason);
            self.events.push_back(ChatEvent::Finished { choice: choice as u32, reason, usage });
            self.open -= 1;
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        for (id, _) in self.ids.iter().zip(&self.choices).filter(|(_, c)| !c.finished) {
            self.served.runner.cancel(*id);
            self.served.metrics.finished(&FinishReason::Cancelled);
        }
    }
}
