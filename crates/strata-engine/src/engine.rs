//! One sequence on a model: prefill, then steps that each give one or more tokens.

use crate::draft_length::DraftLength;
use crate::error::EngineError;
use crate::options::{EngineOptions, MAX_SPEC};
use crate::sampler::{History, Origin, Sampler, SamplingParams, TokenLogprob};
use crate::speculate::Drafter;
use std::time::Instant;
use strata_model::{Limits, Model, Scratch, Sequence};
use strata_ops::backend::Backend;

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub id: u32,
    /// Natural logarithm of its probability, if asked for.
    pub logprob: Option<f32>,
    /// The most probable tokens at its place, if asked for, best first.
    pub top: Vec<TokenLogprob>,
}

/// Counts since the engine was made or cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tokens run through the trunk as prompts.
    pub prompt_tokens: usize,
    /// Trunk passes that gave tokens.
    pub steps: usize,
    /// Tokens drafted, and how many of them were right.
    pub drafted: usize,
    pub accepted: usize,
}

impl Stats {
    /// Share of drafted tokens that were right; `None` before any draft.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

/// A model with the memory to run one sequence.
pub struct Engine<B: Backend> {
    pub(crate) backend: B,
    pub(crate) model: Model<B>,
    pub(crate) options: EngineOptions,
    pub(crate) scratch: Scratch<B>,
    pub(crate) seq: Sequence<B>,
    pub(crate) drafter: Option<Drafter<B>>,
    /// Chooses how many tokens to draft, where the options ask for it. What it learned outlives a sequence.
    length: Option<DraftLength>,
    sampler: Sampler,
    history: History,
    /// Logits of the rows of the last head call, on the host.
    pub(crate) logits: Vec<f32>,
    /// The newest token: drawn but not run.
    current: Option<u32>,
    /// The tokens of a window: the current one and the drafts.
    window: Vec<u32>,
    top: Vec<TokenLogprob>,
    pub(crate) stats: Stats,
}

impl<B: Backend> Engine<B> {
    /// Takes all the memory that runs will need.
    ///
    /// # Errors
    /// An option out of range, drafting without an MTP block, or not enough memory.
    pub fn new(backend: B, model: Model<B>, options: EngineOptions) -> Result<Engine<B>, EngineError> {
        let bad = |field, expected: String, found: String| Err(EngineError::Option { field, expected, found });
        let c = model.config();
        if options.capacity < 2 || options.capacity > c.context {
            return bad("context", format!("2 to {} tokens (the model's limit)", c.context), options.capacity.to_string());
        }
        if options.chunk == 0 {
            return bad("chunk", "at least 1 token".into(), "0".into());
        }
        if options.spec > MAX_SPEC {
            return bad("spec", format!("0 to {MAX_SPEC} drafted tokens"), options.spec.to_string());
        }
        if options.spec > 0 && !model.has_mtp() {
            return bad("spec", "0, for a model without an MTP block".into(), options.spec.to_string());
        }
        if !(0.0..=1.0).contains(&options.spec_min_p) {
            return bad("spec_min_p", "a probability".into(), options.spec_min_p.to_string());
        }
        let rows = options.spec + 1;
        let limits = Limits {
            rows: options.chunk.min(options.capacity).max(rows),
            head_rows: rows.max(options.score_rows),
            capacity: options.capacity,
        };
        let scratch = Scratch::new(&backend, &model, limits)?;
        let seq = Sequence::new(&backend, &model, options.kv, options.capacity, if options.spec > 0 { rows } else { 0 })?;
        let drafter = if options.spec > 0 { Some(Drafter::new(&backend, &model, &options)?) } else { None };
        let vocab = c.vocab;
        Ok(Engine {
            scratch,
            seq,
            drafter,
            length: (options.spec > 0 && options.spec_auto).then(DraftLength::new),
            sampler: Sampler::with_exp(vocab as u32, options.exp),
            history: History::new(vocab, options.capacity + rows, None),
            logits: vec![0.0; limits.head_rows * vocab],
            current: None,
            window: Vec::with_capacity(rows),
            top: vec![TokenLogprob::default(); 256],
            stats: Stats::default(),
            backend,
            model,
            options,
        })
    }

    pub fn model(&self) -> &Model<B> {
        &self.model
    }

    pub fn backend(&self) -> &B {
        &self.backend
    }

    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes of host memory that are not buffers of the backend: logits, sampler, token history, position tables.
    pub fn host_bytes(&self) -> u64 {
        let tokens = self.history.bytes() + self.sampler.bytes() + size_of::<TokenLogprob>() * self.top.capacity();
        (tokens + 4 * (self.logits.capacity() + self.window.capacity())) as u64 + self.scratch.host_bytes()
    }

    /// Takes the engine apart, to make another with other options of the same model.
    pub fn into_parts(self) -> (B, Model<B>) {
        (self.backend, self.model)
    }

    /// Tokens that have been run: a prompt that begins with them continues this sequence.
    pub fn committed(&self) -> &[u32] {
        &self.history.tokens()[..self.seq.len()]
    }

    /// Back to the empty sequence.
    pub fn clear(&mut self) {
        self.seq.clear(&self.backend, self.model.config());
        if let Some(d) = &mut self.drafter {
            d.clear(&self.backend);
        }
        self.history.reset(None);
        self.current = None;
        self.stats = Stats::default();
    }

    /// Runs a prompt and draws the first token. Tokens already run are not run again where they begin the prompt;
    /// otherwise the sequence starts over.
    ///
    /// `progress(done, all)` is called before every chunk and at the end; it returns false to stop.
    ///
    /// # Errors
    /// An empty prompt, one that leaves no room for an answer, ids out of range, bad parameters, a value that is not
    /// finite, or [`EngineError::Cancelled`]. After an error the sequence is empty.
    pub fn start(
        &mut self,
        prompt: &[u32],
        params: &SamplingParams,
        progress: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Token, EngineError> {
        let r = self.try_start(prompt, params, progress);
        if r.is_err() {
            self.clear();
        }
        r
    }

    fn try_start(
        &mut self,
        prompt: &[u32],
        params: &SamplingParams,
        progress: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Token, EngineError> {
        params.validate()?;
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt.len() >= self.options.capacity {
            return Err(EngineError::PromptTooLong { found: prompt.len(), capacity: self.options.capacity });
        }
        let vocab = self.model.config().vocab;
        if let Some(i) = prompt.iter().position(|t| *t as usize >= vocab) {
            return Err(strata_model::ForwardError::TokenOutOfRange { id: prompt[i], position: i, vocab }.into());
        }
        // at least one token must be run, for its logits
        let kept = self.seq.len();
        let continues = kept > 0 && kept < prompt.len() && self.committed() == &prompt[..kept];
        if !continues {
            self.seq.clear(&self.backend, self.model.config());
            if let Some(d) = &mut self.drafter {
                d.clear(&self.backend);
            }
        }
        let kept = self.seq.len();
        if let (true, Some(d)) = (continues, &mut self.drafter) {
            d.complete(&self.backend, &self.model, &mut self.scratch, prompt[kept])?;
        }
        self.history.reset(params.penalty_last_n);
        for t in prompt {
            self.history.push(*t, Origin::Prompt)?;
        }
        self.current = None;
        let mut done = kept;
        while done < prompt.len() {
            if !progress(done, prompt.len()) {
                return Err(EngineError::Cancelled);
            }
            let end = (done + self.options.chunk).min(prompt.len());
            self.model.forward(&self.backend, &mut self.seq, &mut self.scratch, &prompt[done..end], true, None)?;
            self.stats.prompt_tokens += end - done;
            if end == prompt.len() {
                self.head(end - done - 1, 1)?;
            }
            if let Some(d) = &mut self.drafter {
                d.follow_prompt(&self.backend, &self.model, &mut self.scratch, &prompt[done + 1..(end + 1).min(prompt.len())], end - done)?;
            }
            done = end;
        }
        progress(done, prompt.len());
        let token = self.draw(0, params)?;
        self.current = Some(token.id);
        Ok(token)
    }

    /// Runs the newest token, with drafts after it if the engine speculates, and appends the tokens that follow it to
    /// `out`. Nothing is appended after a token for which `stop` is true, nor when the context is full.
    ///
    /// # Errors
    /// A value that is not finite, or a sampling error; the sequence is then empty.
    ///
    /// # Panics
    /// If there is no newest token: call [`Engine::start`] first.
    pub fn step(&mut self, params: &SamplingParams, stop: &dyn Fn(u32) -> bool, out: &mut Vec<Token>) -> Result<(), EngineError> {
        let r = self.try_step(params, stop, out);
        if r.is_err() {
            self.clear();
        }
        r
    }

    fn try_step(&mut self, params: &SamplingParams, stop: &dyn Fn(u32) -> bool, out: &mut Vec<Token>) -> Result<(), EngineError> {
        let current = self.current.expect("a sequence was started");
        let room = self.options.capacity - self.seq.len();
        if room == 0 {
            return Ok(());
        }
        self.window.clear();
        self.window.push(current);
        let start = Instant::now();
        let b = &self.backend;
        let drafts = self.length.as_mut().is_none_or(DraftLength::begin);
        let Some(d) = self.drafter.as_mut().filter(|_| drafts) else {
            self.model.forward(b, &mut self.seq, &mut self.scratch, &self.window, true, None)?;
            if let Some(d) = &mut self.drafter {
                d.skip(b, &self.model, &self.scratch, current);
            }
            self.head(0, 1)?;
            self.stats.steps += 1;
            let token = self.draw(0, params)?;
            self.current = Some(token.id);
            out.push(token);
            if let Some(l) = &mut self.length {
                l.plain_step(start.elapsed());
            }
            return Ok(());
        };
        let length = self.length.as_mut();
        d.draft(b, &self.model, &mut self.scratch, current, self.options.spec.min(room - 1), length, &mut self.logits, &mut self.window)?;
        let drafting = start.elapsed();
        let rows = self.window.len();
        self.model.forward(b, &mut self.seq, &mut self.scratch, &self.window, false, None)?;
        self.head(0, rows)?;
        self.stats.steps += 1;
        self.stats.drafted += rows - 1;
        let first = out.len();
        for row in 0..rows {
            let token = self.draw(row, params)?;
            let id = token.id;
            out.push(token);
            let right = row + 1 < rows && self.window[row + 1] == id;
            self.stats.accepted += usize::from(right);
            if !right || stop(id) {
                break;
            }
        }
        let kept = out.len() - first;
        self.seq.commit(&self.backend, self.model.config(), kept);
        self.window.clear();
        self.window.extend(out[first..].iter().map(|t| t.id));
        if let Some(d) = &mut self.drafter {
            d.follow(&self.backend, &self.model, &mut self.scratch, &self.window);
            if let Some(l) = &mut self.length {
                let (drafts, promised) = d.last();
                l.draft_step(drafts, drafting, rows, start.elapsed() - drafting, kept, promised);
            }
        }
        self.current = self.window.last().copied();
        Ok(())
    }

    /// True if no further token can be run.
    pub fn is_full(&self) -> bool {
        self.seq.len() >= self.options.capacity
    }

    /// Logits of rows of the last forward call, on the host.
    pub(crate) fn head(&mut self, row: usize, n: usize) -> Result<(), EngineError> {
        self.model.head(&self.backend, &mut self.scratch, row, n)?;
        let vocab = self.model.config().vocab;
        self.backend.read(self.scratch.logits(), 0, &mut self.logits[..n * vocab]);
        Ok(())
    }

    /// Draws the token after row `row` of the last head call and adds it to the history.
    fn draw(&mut self, row: usize, params: &SamplingParams) -> Result<Token, EngineError> {
        let vocab = self.model.config().vocab;
        let logits = &self.logits[row * vocab..(row + 1) * vocab];
        let position = self.history.tokens().len() as u64;
        let history = params.has_penalties().then_some(&self.history);
        let s = self.sampler.sample(logits, params, history, None, position, 0, &mut self.top)?;
        self.history.push(s.token, Origin::Generated)?;
        Ok(Token { id: s.token, logprob: s.logprob, top: self.top[..s.top_len].to_vec() })
    }
}
