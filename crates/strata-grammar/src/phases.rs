//! The parts of an answer: reasoning, content, what a grammar rules.

use crate::vocabulary::{Marker, Vocabulary};
use llguidance::Matcher;
use std::sync::Arc;

/// Allowed tokens; `None` allows all.
pub(crate) type Mask = Option<Arc<[u32]>>;

/// What comes behind the reasoning.
pub(crate) enum Then {
    /// The grammar, to the end.
    Grammar(Matcher),
    /// Free text; `call` is the grammar of what follows `marker`, and then the text is free again.
    Calls { marker: Arc<Marker>, call: Matcher, parallel: bool },
}

#[derive(Clone)]
enum Phase {
    /// Free, before the end of reasoning or before a call; the text ends with `seen` bytes of the marker.
    Free {
        marker: Arc<Marker>,
        seen: usize,
        thinking: bool,
    },
    Grammar(Box<Matcher>),
    Done,
}

/// A clone goes its own way; both must not be used at the same time.
#[derive(Clone)]
pub(crate) struct Phases {
    vocabulary: Arc<Vocabulary>,
    phase: Phase,
    then: Arc<Then>,
    calls: usize,
}

impl Phases {
    pub fn new(vocabulary: Arc<Vocabulary>, think: Option<Arc<Marker>>, then: Then) -> Self {
        let mut phases = Self { vocabulary, phase: Phase::Done, then: Arc::new(then), calls: 0 };
        match think {
            Some(marker) => phases.phase = Phase::Free { marker, seen: 0, thinking: true },
            None => phases.answer(),
        }
        phases
    }

    /// Behind the reasoning.
    fn answer(&mut self) {
        self.phase = match &*self.then {
            Then::Grammar(matcher) => Phase::Grammar(Box::new(matcher.clone())),
            Then::Calls { marker, .. } => Phase::Free { marker: Arc::clone(marker), seen: 0, thinking: false },
        };
    }

    /// The tokens that may come now.
    ///
    /// # Errors
    /// The grammar went past its limits.
    pub fn mask(&mut self) -> Result<Mask, String> {
        match &mut self.phase {
            Phase::Free { marker, seen, thinking } => {
                let spelled = marker.spelled(*seen);
                // No further call, if one is the most.
                let no_call = matches!(&*self.then, Then::Calls { parallel: false, .. }) && self.calls > 0 && !*thinking;
                let free = matches!(&*self.then, Then::Grammar(_)).then(|| self.vocabulary.free());
                let mut mask = match free {
                    None if spelled.is_empty() && !no_call => return Ok(None),
                    None => self.vocabulary.all(),
                    Some(free) if spelled.is_empty() => return Ok(Some(with(free, marker.id))),
                    Some(free) => free.to_vec(),
                };
                set(&mut mask, marker.id, true);
                spelled.iter().for_each(|&id| set(&mut mask, id, false));
                if no_call {
                    set(&mut mask, marker.id, false);
                }
                Ok(Some(mask.into()))
            }
            Phase::Grammar(matcher) => {
                let mask = matcher.compute_mask().map_err(|e| short(&e))?;
                // The library's set has a bit more than there are tokens.
                Ok(Some(mask.as_slice()[..self.vocabulary.free().len()].into()))
            }
            Phase::Done => Err("the answer is complete".to_owned()),
        }
    }

    /// Takes a token; true if nothing may follow it.
    ///
    /// # Errors
    /// The grammar does not allow it, or went past its limits.
    pub fn accept(&mut self, token: u32) -> Result<bool, String> {
        match &mut self.phase {
            Phase::Free { marker, seen, thinking } => {
                if self.vocabulary.is_stop(token) {
                    self.phase = Phase::Done;
                    return Ok(true);
                }
                let now = marker.advance(*seen, self.vocabulary.shown(token));
                match (token == marker.id || marker.is_complete(now), *thinking) {
                    (false, _) => *seen = now,
                    (true, true) => self.answer(),
                    (true, false) => {
                        self.calls += 1;
                        if let Then::Calls { call, .. } = &*self.then {
                            self.phase = Phase::Grammar(Box::new(call.clone()));
                        }
                    }
                }
                Ok(false)
            }
            Phase::Grammar(matcher) => {
                matcher.consume_token(token).map_err(|e| short(&e))?;
                if !matcher.is_stopped() {
                    return Ok(false);
                }
                if let Some(error) = matcher.get_error() {
                    return Err(short(&error));
                }
                if matches!(&*self.then, Then::Grammar(_)) || self.vocabulary.is_stop(token) {
                    self.phase = Phase::Done;
                    return Ok(true);
                }
                self.answer();
                Ok(false)
            }
            Phase::Done => Err("the answer is complete".to_owned()),
        }
    }

    #[cfg(test)]
    pub fn matcher(&mut self) -> Option<&mut Matcher> {
        if let Phase::Grammar(matcher) = &mut self.phase { Some(matcher) } else { None }
    }
}

fn with(mask: &[u32], id: u32) -> Arc<[u32]> {
    let mut mask = mask.to_vec();
    set(&mut mask, id, true);
    mask.into()
}

fn set(mask: &mut [u32], id: u32, on: bool) {
    let bit = 1 << (id % 32);
    let word = &mut mask[id as usize / 32];
    *word = if on { *word | bit } else { *word & !bit };
}

/// Whether a mask allows a token.
pub(crate) fn allows(mask: &Mask, id: u32) -> bool {
    mask.as_ref().is_none_or(|m| m.get(id as usize / 32).is_some_and(|w| w >> (id % 32) & 1 == 1))
}

/// The library's message, without what it adds for its developers.
fn short(error: &dyn std::fmt::Display) -> String {
    error.to_string().split("\n<").next().unwrap_or_default().to_owned()
}
