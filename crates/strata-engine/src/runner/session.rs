//! Sessions in files of their own: the state of a slot, saved and put back by name.

use super::Runner;
use crate::batch::Batch;
use crate::checkpoint::Checkpoint;
use crate::error::EngineError;
use crate::prefix_cache::{FileError, Reuse};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use strata_ops::backend::Backend;
use thiserror::Error;

/// Why a session could not be saved or put back.
#[derive(Debug, Error)]
pub enum SessionError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("slot: expected 0 to {}, found {found}", slots - 1)]
    Slot { slots: usize, found: usize },
    #[error("slot {0} is empty")]
    Empty(usize),
    #[error("the prefix cache has no room for the session")]
    NoRoom,
    #[error("the server is stopping")]
    Stopping,
}

/// What the runner's thread is asked for between two steps.
pub(super) enum Command {
    Save { slot: usize, to: Sender<Result<Checkpoint, EngineError>> },
    Restore { checkpoint: Arc<Checkpoint>, to: Sender<Result<bool, EngineError>> },
}

impl Command {
    /// Answers; whoever asked may have left.
    pub fn serve<B: Backend>(self, batch: &mut Batch<B>, reuse: &mut Reuse) {
        match self {
            Command::Save { slot, to } => drop(to.send(batch.checkpoint(slot, None))),
            Command::Restore { checkpoint, to } => {
                let known = batch.check(0, &checkpoint).map(|()| reuse.add(checkpoint));
                drop(to.send(known));
            }
        }
    }
}

impl Runner {
    /// Saves what a slot holds, at the length it has between two steps, to a file; returns its tokens. The file is written on the
    /// caller's thread.
    ///
    /// # Errors
    /// No such slot, nothing in it, or the file cannot be written.
    pub fn save_session(&self, slot: usize, path: &Path) -> Result<usize, SessionError> {
        let slots = self.facts().slots;
        if slot >= slots {
            return Err(SessionError::Slot { slots, found: slot });
        }
        let checkpoint = self.ask(|to| Command::Save { slot, to })??;
        if checkpoint.tokens().is_empty() {
            return Err(SessionError::Empty(slot));
        }
        checkpoint.save(&self.handle.configuration, path).map_err(FileError::Io)?;
        Ok(checkpoint.tokens().len())
    }

    /// Reads a file of [`Runner::save_session`] into the prefix cache, where the next prompt that begins with it finds it; returns its
    /// tokens.
    ///
    /// # Errors
    /// The file cannot be read or is not of this model and configuration, or the cache has no room for it.
    pub fn restore_session(&self, path: &Path) -> Result<usize, SessionError> {
        let checkpoint = Arc::new(Checkpoint::open(&self.handle.configuration, path)?);
        let tokens = checkpoint.tokens().len();
        if self.ask(|to| Command::Restore { checkpoint, to })?? { Ok(tokens) } else { Err(SessionError::NoRoom) }
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, SessionError> {
        let (to, from) = channel();
        let mut state = self.handle.shared.lock();
        if state.gone || state.stop.is_some() {
            return Err(SessionError::Stopping);
        }
        state.sessions.push(command(to));
        self.handle.shared.wake.notify_one();
        drop(state);
        from.recv().map_err(|_| SessionError::Stopping)
    }
}
