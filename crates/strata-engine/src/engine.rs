//! One sequence on a model: prefill, then steps that each give one or more tokens. A [`Batch`] of one slot.

use crate::batch::Batch;
use crate::error::EngineError;
use crate::options::EngineOptions;
use crate::sampler::SamplingParams;
use crate::slot::{Stats, Token};
use crate::step::{Event, Work};
use strata_model::Model;
use strata_ops::backend::Backend;

/// A model with the memory to run one sequence.
pub struct Engine<B: Backend> {
    pub(crate) batch: Batch<B>,
    events: Vec<Event>,
}

/// The only slot.
pub(crate) const SLOT: usize = 0;

impl<B: Backend> Engine<B> {
    /// Takes all the memory that runs will need.
    ///
    /// # Errors
    /// An option out of range, drafting without an MTP block, or not enough memory.
    pub fn new(backend: B, model: Model<B>, options: EngineOptions) -> Result<Engine<B>, EngineError> {
        Ok(Engine { batch: Batch::new(backend, model, options, 1)?, events: Vec::with_capacity(options.spec + 1) })
    }

    pub fn model(&self) -> &Model<B> {
        self.batch.model()
    }

    pub fn backend(&self) -> &B {
        self.batch.backend()
    }

    pub fn options(&self) -> &EngineOptions {
        self.batch.options()
    }

    pub fn stats(&self) -> Stats {
        self.batch.stats(SLOT)
    }

    /// Bytes of host memory that are not buffers of the backend: logits, sampler, token history, position tables.
    pub fn host_bytes(&self) -> u64 {
        self.batch.host_bytes() + (size_of::<Event>() * self.events.capacity()) as u64
    }

    /// Takes the engine apart, to make another with other options of the same model.
    pub fn into_parts(self) -> (B, Model<B>) {
        self.batch.into_parts()
    }

    /// Tokens that have been run: a prompt that begins with them continues this sequence.
    pub fn committed(&self) -> &[u32] {
        self.batch.committed(SLOT)
    }

    /// Back to the empty sequence.
    pub fn clear(&mut self) {
        self.batch.clear(SLOT);
        self.events.clear();
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
        self.batch.begin(SLOT, prompt, params)?;
        loop {
            if let Some(event) = self.events.pop() {
                let token = event.token?;
                progress(prompt.len(), prompt.len());
                return Ok(token);
            }
            let unread = self.batch.unread(SLOT);
            if !progress(prompt.len() - unread, prompt.len()) {
                return Err(EngineError::Cancelled);
            }
            let rows = self.batch.options().chunk.min(unread);
            self.batch.step(&[Work { slot: SLOT, rows }], &|_, _| false, &mut self.events)?;
        }
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
        assert!(self.batch.is_started(SLOT), "a sequence was started");
        let rows = self.batch.options().spec + 1;
        let r = self.batch.set_params(SLOT, params);
        let r = r.and_then(|()| self.batch.step(&[Work { slot: SLOT, rows }], &|_, id| stop(id), &mut self.events));
        let r = r.and_then(|()| self.events.drain(..).try_for_each(|e| e.token.map(|t| out.push(t))));
        if r.is_err() {
            self.clear();
        }
        r
    }

    /// True if no further token can be run.
    pub fn is_full(&self) -> bool {
        self.batch.is_full(SLOT)
    }
}
