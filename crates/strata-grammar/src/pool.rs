//! Threads that compute masks.

use crate::GrammarError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// Stack of a thread; only what is used takes memory.
const STACK_BYTES: usize = 64 << 20;

/// Runs jobs in the order of their coming. Dropping it waits for those that were given.
pub(crate) struct Pool {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub fn new(threads: usize) -> Result<Self, GrammarError> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Self { jobs: Some(jobs), threads: Vec::new() };
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name("masks".into()).stack_size(STACK_BYTES).spawn(move || work(&queue));
            pool.threads.push(thread.map_err(|e| GrammarError::Thread { detail: e.to_string() })?);
        }
        Ok(pool)
    }

    pub fn run(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // It fails only without threads, and they live as long as this.
            let _ = jobs.send(job);
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // What a job that panics was to answer is dropped, and whoever waits for it is told.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
