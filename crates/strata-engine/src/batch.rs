//! A model with places for several sequences. Steps that take some of them further are in `step`.

use crate::answer::{Answer, Ending};
use crate::draft_length::DraftLength;
use crate::embed::Mean;
use crate::error::EngineError;
use crate::options::{EngineOptions, MAX_SPEC};
use crate::request::Generate;
use crate::sampler::{Origin, Sampler, SamplingParams, TokenLogprob};
use crate::slot::{Slot, Stats};
use crate::speculate::{self, Drafter};
use crate::step::Lists;
use std::ops::Range;
use strata_model::{Limits, Model, Observer, Scratch, Segment, Sequence};
use strata_ops::backend::Backend;

/// A model with the memory to run several sequences.
pub struct Batch<B: Backend> {
    pub(crate) backend: B,
    pub(crate) model: Model<B>,
    pub(crate) options: EngineOptions,
    pub(crate) scratch: Scratch<B>,
    pub(crate) seqs: Vec<Sequence<B>>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) drafter: Option<Drafter<B>>,
    /// Chooses how many tokens to draft, where the options ask for it. What it learned outlives a sequence.
    pub(crate) length: Option<DraftLength>,
    pub(crate) sampler: Sampler,
    /// Logits of the rows of the last head call, on the host.
    pub(crate) logits: Vec<f32>,
    pub(crate) top: Vec<TokenLogprob>,
    /// One row of hidden states.
    pub(crate) hidden: Vec<f32>,
    pub(crate) lists: Lists,
}

impl<B: Backend> Batch<B> {
    /// Takes all the memory that runs of `slots` sequences will need.
    ///
    /// # Errors
    /// An option out of range, drafting without an MTP block, or not enough memory.
    pub fn new(backend: B, model: Model<B>, options: EngineOptions, slots: usize) -> Result<Batch<B>, EngineError> {
        let bad = |field, expected: String, found: String| Err(EngineError::Option { field, expected, found });
        let c = model.config();
        if slots == 0 {
            return bad("slots", "at least 1 sequence".into(), "0".into());
        }
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
        let window = options.spec + 1;
        let each = if options.spec > 0 { speculate::space(&options) } else { 1 };
        let limits = Limits {
            rows: options.chunk.min(options.capacity.saturating_mul(slots)).max(slots.saturating_mul(each)),
            head_rows: slots.saturating_mul(window).max(options.score_rows),
            capacity: options.capacity,
        };
        let (b, vocab) = (&backend, c.vocab);
        let pending = if options.spec > 0 { window } else { 0 };
        let scratch = Scratch::new(b, &model, limits)?;
        let seqs = (0..slots).map(|_| Sequence::new(b, &model, options.kv, options.capacity, pending)).collect::<Result<Vec<_>, _>>()?;
        let drafter = if options.spec > 0 { Some(Drafter::new(b, &model, &options, slots)?) } else { None };
        Ok(Batch {
            scratch,
            seqs,
            slots: (0..slots).map(|_| Slot::new(vocab, &options)).collect(),
            drafter,
            length: (options.spec > 0 && options.spec_auto).then(DraftLength::new),
            sampler: Sampler::with_exp(vocab as u32, options.exp),
            logits: vec![0.0; limits.head_rows * vocab],
            top: vec![TokenLogprob::default(); 256],
            hidden: vec![0.0; c.hidden],
            lists: Lists::new(slots, &limits),
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

    /// Sequences there is memory for.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Rows that one step can run, of all slots together.
    pub fn max_rows(&self) -> usize {
        self.scratch.limits.rows
    }

    /// Bytes of host memory that are not buffers of the backend: logits, sampler, token histories, position tables, lists.
    pub fn host_bytes(&self) -> u64 {
        let slots: usize = self.slots.iter().map(|s| size_of::<Slot>() + s.bytes()).sum();
        let top = size_of::<TokenLogprob>() * self.top.capacity();
        (slots + self.lists.bytes() + top + self.sampler.bytes() + 4 * (self.logits.capacity() + self.hidden.capacity())) as u64
            + self.scratch.host_bytes()
    }

    /// Takes the batch apart, to make another with other options of the same model.
    pub fn into_parts(self) -> (B, Model<B>) {
        (self.backend, self.model)
    }

    pub fn stats(&self, slot: usize) -> Stats {
        self.slots[slot].stats
    }

    /// Tokens that have been run: a prompt that begins with them continues this sequence.
    pub fn committed(&self, slot: usize) -> &[u32] {
        &self.slots[slot].history.tokens()[..self.seqs[slot].len()]
    }

    /// Tokens of the slot's prompt that are not run yet; 0 once it gives tokens.
    pub fn unread(&self, slot: usize) -> usize {
        let s = &self.slots[slot];
        if s.current.is_some() { 0 } else { s.history.tokens().len() - self.seqs[slot].len() }
    }

    /// True if the slot has a newest token, which the next step can run.
    pub fn is_started(&self, slot: usize) -> bool {
        self.slots[slot].current.is_some()
    }

    /// How the slot's answer has ended, if it has.
    pub fn ending(&self, slot: usize) -> Option<Ending> {
        let s = &self.slots[slot];
        s.answer.ending.or((s.current.is_some() && self.is_full(slot)).then_some(Ending::Length))
    }

    /// True if no further token of the slot can be run.
    pub fn is_full(&self, slot: usize) -> bool {
        self.seqs[slot].len() >= self.options.capacity
    }

    /// Back to the empty sequence.
    pub fn clear(&mut self, slot: usize) {
        self.forget(slot);
        self.slots[slot].clear();
    }

    /// Ends the slot's answer. What was run stays, for a prompt that begins with it.
    pub fn finish(&mut self, slot: usize) {
        if self.slots[slot].mean.is_some() {
            // the drafter did not follow
            return self.clear(slot);
        }
        let (s, run) = (&mut self.slots[slot], self.seqs[slot].len());
        s.history.truncate(run);
        s.current = None;
        s.answer = Answer::default();
    }

    /// Empties what the backend holds of a slot.
    fn forget(&mut self, slot: usize) {
        self.seqs[slot].clear(&self.backend, self.model.config());
        if let Some(d) = &mut self.drafter {
            d.clear(&self.backend, slot);
        }
    }

    /// How the slot's tokens are drawn from now on.
    ///
    /// # Errors
    /// Parameters out of range.
    pub fn set_params(&mut self, slot: usize, params: &SamplingParams) -> Result<(), EngineError> {
        params.validate()?;
        self.slots[slot].params = *params;
        Ok(())
    }

    /// Gives a slot a prompt, which the next steps will read. Tokens already run are not run again where they begin the prompt;
    /// otherwise the sequence starts over.
    ///
    /// # Errors
    /// An empty prompt, one that leaves no room for an answer, ids out of range or bad parameters. The slot is then unchanged.
    pub fn begin(&mut self, slot: usize, prompt: &[u32], params: &SamplingParams) -> Result<(), EngineError> {
        self.check_prompt(prompt, 1)?;
        self.set_params(slot, params)?;
        self.load(slot, prompt, params.penalty_last_n)
    }

    /// [`Batch::begin`] with all that can be asked of an answer; [`Batch::ending`] says when it is complete.
    ///
    /// # Errors
    /// As [`Batch::begin`], or [`Generate::check`].
    pub fn begin_answer(&mut self, slot: usize, prompt: &[u32], asked: Generate) -> Result<(), EngineError> {
        asked.check(self.model.config().vocab)?;
        self.begin(slot, prompt, &asked.params)?;
        self.slots[slot].answer = Answer::new(asked);
        Ok(())
    }

    /// Gives a slot a text to embed, which the next steps will read from its first token on; [`Batch::take_embedding`] then has
    /// the mean.
    ///
    /// # Errors
    /// An empty text, one longer than the context, or ids out of range. The slot is then unchanged.
    pub fn begin_embedding(&mut self, slot: usize, text: &[u32]) -> Result<(), EngineError> {
        self.check_prompt(text, 0)?;
        self.clear(slot);
        self.load(slot, text, None)?;
        self.slots[slot].mean = Some(Mean::new(self.model.config().hidden));
        Ok(())
    }

    /// Looks for a reason to refuse a prompt after which `room` tokens must fit.
    fn check_prompt(&self, prompt: &[u32], room: usize) -> Result<(), EngineError> {
        crate::request::check_prompt(prompt, room, self.options.capacity, self.model.config().vocab)
    }

    fn load(&mut self, slot: usize, prompt: &[u32], window: Option<usize>) -> Result<(), EngineError> {
        // at least one token must be run, for its logits
        let kept = self.seqs[slot].len();
        if kept >= prompt.len() || self.committed(slot) != &prompt[..kept] {
            self.forget(slot);
        }
        let s = &mut self.slots[slot];
        s.current = None;
        s.answer = Answer::default();
        s.mean = None;
        s.history.reset(window);
        for t in prompt {
            s.history.push(*t, Origin::Prompt)?;
        }
        Ok(())
    }

    /// Runs tokens of one slot through the trunk, drawing none.
    pub(crate) fn run(&mut self, slot: usize, tokens: &[u32], observer: Option<&mut dyn Observer>) -> Result<(), EngineError> {
        let segment = Segment { seq: slot, rows: tokens.len(), commit: true };
        Ok(self.model.forward(&self.backend, &mut self.seqs, &[segment], tokens, &mut self.scratch, observer)?)
    }

    /// Logits of rows of the last pass, on the host.
    pub(crate) fn head(&mut self, rows: Range<usize>) -> Result<(), EngineError> {
        let n = rows.len();
        self.model.head(&self.backend, &mut self.scratch, rows)?;
        let vocab = self.model.config().vocab;
        self.backend.read(self.scratch.logits(), 0, &mut self.logits[..n * vocab]);
        Ok(())
    }
}
