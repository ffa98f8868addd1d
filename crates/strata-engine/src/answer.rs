//! What is asked of an answer beside its sampling parameters: bias, a grammar, an end.

use crate::error::EngineError;
use crate::request::{Constraint, Generate};
use crate::sampler::{Draw, History, SamplingParams};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How an answer ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A stop token was drawn, or the grammar is complete.
    Stop,
    /// It has as many tokens as were asked for, or the context is full.
    Length,
}

/// The answer of a slot.
#[derive(Default)]
pub(crate) struct Answer {
    pub ending: Option<Ending>,
    choice: u32,
    bias: Vec<(u32, f32)>,
    /// Tokens that it may have; `None`: as many as the context holds.
    left: Option<usize>,
    stop: Vec<u32>,
    constraint: Option<Box<dyn Constraint>>,
}

impl Answer {
    pub fn new(asked: Generate) -> Answer {
        let Generate { params: _, choice, max_tokens, stop, bias, constraint } = asked;
        Answer { choice, bias, ending: None, left: Some(max_tokens), stop, constraint }
    }

    /// Tells the grammar of the next pass.
    pub fn ahead(&mut self, drafts: &[u32]) -> Result<(), EngineError> {
        match &mut self.constraint {
            Some(c) => guard(|| {
                c.ahead(drafts);
                Ok(())
            }),
            None => Ok(()),
        }
    }

    /// How the token after those of `history` is to be drawn.
    pub fn next<'a>(&'a mut self, history: &'a History, params: &SamplingParams) -> Result<Draw<'a>, EngineError> {
        let allowed = match &mut self.constraint {
            Some(c) => guard(|| c.allowed())?,
            None => None,
        };
        let (position, choice) = (history.tokens().len() as u64, self.choice);
        Ok(Draw { position, choice, history: params.has_penalties().then_some(history), bias: &self.bias, allowed })
    }

    /// Takes a token that was drawn.
    pub fn take(&mut self, token: u32) -> Result<(), EngineError> {
        let complete = match &mut self.constraint {
            Some(c) => guard(|| c.accept(token))?,
            None => false,
        };
        self.left = self.left.map(|n| n.saturating_sub(1));
        self.ending =
            if complete || self.stop.contains(&token) { Some(Ending::Stop) } else { (self.left == Some(0)).then_some(Ending::Length) };
        Ok(())
    }
}

/// A grammar's answer; its panic is an error of this sequence alone.
fn guard<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, EngineError> {
    let r = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("it panicked".into()));
    r.map_err(EngineError::Constraint)
}
