//! Masks computed while the model runs.

use crate::phases::{Mask, Phases, allows};
use crate::pool::Pool;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use strata_engine::Constraint;

const ENDED: &str = "the thread that computes masks failed";

type Masks = Vec<Result<Mask, String>>;

/// A constraint. While a job computes masks, the state is with the job.
pub(crate) struct Ahead {
    state: State,
    pool: Arc<Pool>,
    /// `masks[i]`: of the state behind the first i of `drafts`.
    masks: Masks,
    drafts: Vec<u32>,
    /// How many of the drafts were accepted.
    at: usize,
}

enum State {
    Here(Phases),
    Away(Receiver<(Phases, Masks)>),
    Failed,
}

impl Ahead {
    pub fn new(phases: Phases, pool: Arc<Pool>) -> Self {
        Self { state: State::Here(phases), pool, masks: Vec::new(), drafts: Vec::new(), at: 0 }
    }

    /// The state, waited for if it is away.
    fn phases(&mut self) -> Result<&mut Phases, String> {
        if let State::Away(answer) = &self.state {
            match answer.recv() {
                Ok((phases, masks)) => {
                    self.state = State::Here(phases);
                    self.masks = masks;
                }
                Err(_) => self.state = State::Failed,
            }
        }
        match &mut self.state {
            State::Here(phases) => Ok(phases),
            State::Away(_) | State::Failed => Err(ENDED.to_owned()),
        }
    }
}

/// The masks of the state and of those behind each start of `drafts`, up to a draft that is not allowed or ends the answer. `known` is
/// the first, if it was computed already.
fn look_ahead(phases: &mut Phases, drafts: &[u32], known: Option<Mask>) -> Masks {
    let mut masks = vec![known.map_or_else(|| phases.mask(), Ok)];
    if drafts.is_empty() {
        return masks;
    }
    let mut fork = phases.clone();
    for &draft in drafts {
        let open = masks.last().is_some_and(|m| m.as_ref().is_ok_and(|m| allows(m, draft)));
        if !open || fork.accept(draft) != Ok(false) {
            break;
        }
        masks.push(fork.mask());
    }
    masks
}

impl Constraint for Ahead {
    fn ahead(&mut self, drafts: &[u32]) {
        if self.phases().is_err() {
            return;
        }
        let known = self.masks.get(self.at).and_then(|m| m.clone().ok());
        let State::Here(mut phases) = std::mem::replace(&mut self.state, State::Failed) else { return };
        let (send, receive) = channel();
        self.drafts = drafts.to_vec();
        self.at = 0;
        self.masks.clear();
        let drafts = drafts.to_vec();
        self.state = State::Away(receive);
        self.pool.run(Box::new(move || {
            let masks = look_ahead(&mut phases, &drafts, known);
            // Nobody waits if the request was cancelled.
            let _ = send.send((phases, masks));
        }));
    }

    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        self.phases()?;
        if self.masks.len() <= self.at {
            let mask = self.phases()?.mask();
            self.drafts.clear();
            (self.masks, self.at) = (vec![mask], 0);
        }
        match &self.masks[self.at] {
            Ok(mask) => Ok(mask.as_deref()),
            Err(error) => Err(error.clone()),
        }
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        let complete = self.phases()?.accept(token)?;
        if self.drafts.get(self.at) == Some(&token) {
            self.at += 1;
        } else {
            self.drafts.clear();
            self.masks.clear();
            self.at = 0;
        }
        Ok(complete)
    }
}
