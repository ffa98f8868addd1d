//! Vectors that stand for texts.

use super::error::RequestError;
use crate::served::Served;
use std::sync::Arc;
use std::time::Instant;
use strata_engine::{Kind, Reason, Request, RequestId, Runner, Sink, Update};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The vectors of one request's texts. Dropped, it cancels what has not ended.
pub struct Embeddings {
    runner: Runner,
    ids: Vec<RequestId>,
    updates: UnboundedReceiver<(usize, Update)>,
    vectors: Vec<Option<Vec<f32>>>,
    open: usize,
    prompt: usize,
}

struct ToChannel(usize, UnboundedSender<(usize, Update)>);

impl Sink for ToChannel {
    fn send(&mut self, update: Update) -> bool {
        self.1.send((self.0, update)).is_ok()
    }
}

impl Embeddings {
    /// Hands one request for each prompt to the engine.
    ///
    /// # Errors
    /// The queue has no room for all of them.
    pub fn start(served: &Arc<Served>, prompts: Vec<Vec<u32>>, deadline: Option<Instant>) -> Result<Embeddings, RequestError> {
        let (to, updates) = unbounded_channel();
        let (open, prompt) = (prompts.len(), prompts.iter().map(Vec::len).sum());
        let runner = served.runner.clone();
        let mut e = Embeddings { runner, ids: Vec::new(), updates, vectors: vec![None; open], open, prompt };
        for (i, prompt) in prompts.into_iter().enumerate() {
            let request = Request { prompt, kind: Kind::Embed, deadline, marks: Vec::new(), use_cache: false };
            e.ids.push(e.runner.submit(request, Box::new(ToChannel(i, to.clone())))?);
        }
        Ok(e)
    }

    /// Tokens of all prompts.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt
    }

    /// All vectors, in the order of the prompts.
    ///
    /// # Errors
    /// One of them did not come.
    pub async fn collect(mut self) -> Result<Vec<Vec<f32>>, RequestError> {
        while self.open > 0 {
            match self.updates.recv().await {
                Some((i, Update::Embedding(vector))) => self.vectors[i] = Some(vector),
                Some((_, Update::Ended { reason, .. })) => {
                    self.open -= 1;
                    match reason {
                        Reason::Stop | Reason::Length => {}
                        Reason::Cancelled => return Err(RequestError::Internal("the request was cancelled".into())),
                        Reason::Deadline => return Err(RequestError::Deadline),
                        Reason::Stopped => return Err(RequestError::Stopping),
                        Reason::Failed(e) => return Err(RequestError::Engine(e)),
                    }
                }
                Some(_) => {}
                None => return Err(RequestError::Stopping),
            }
        }
        let vectors = self.vectors.iter_mut().map(|v| v.take().ok_or_else(|| RequestError::Internal("a vector is missing".into())));
        vectors.collect()
    }
}

impl Drop for Embeddings {
    fn drop(&mut self) {
        // cancelling what has ended does nothing
        self.ids.iter().for_each(|id| self.runner.cancel(*id));
    }
}
