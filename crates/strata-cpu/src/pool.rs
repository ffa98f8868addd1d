//! A thread pool for the token path, its workers pinned if asked: spin, then park; no allocation a job.

use crate::cores::{cores_from_here, stay_on};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use thiserror::Error;

/// A job: `call(task, worker)` for every task number. Erased so that the pool needs no allocation.
#[derive(Clone, Copy)]
struct Job {
    call: *const (dyn Fn(usize, usize) + Sync),
    tasks: usize,
}

/// State shared between the owner and its workers.
struct Shared {
    /// Counts jobs; a worker that sees it change takes part in the job.
    epoch: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    /// Workers still in the current job.
    busy: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleepers: Mutex<usize>,
    wake: Condvar,
}

// SAFETY: `job` is written only by the owner while no worker is busy, and read by workers only after they have
// observed the epoch change that follows the write (release / acquire).
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer inside is only followed while the owner's borrow is alive.
unsafe impl Send for Shared {}

/// Rounds of spinning before a thread parks (some tens of microseconds).
const SPINS: usize = 4_000;

/// Why there is no pool.
#[derive(Debug, Error)]
#[error("cannot start thread {number} of {threads}: {cause}")]
pub struct PoolError {
    /// The thread that did not start, counted from 1, the caller.
    pub number: usize,
    pub threads: usize,
    pub cause: std::io::Error,
}

/// A fixed set of threads; the caller is worker 0.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One job at a time: `run` takes this lock.
    running: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` in all (at least 1), the caller included, wherever the system puts them: for tests and suites.
    ///
    /// # Panics
    /// If the system does not start the threads; [`Pool::pinned`] gives an error.
    pub fn new(threads: usize) -> Pool {
        Pool::start(threads, |_| {}).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A pool whose workers stay on one core each, in the order of [`crate::cores`] after the caller's present one, where the
    /// system allows it (Linux). The caller is left alone: threads that it starts later would inherit its place.
    ///
    /// # Errors
    /// The system does not start that many threads.
    pub fn pinned(threads: usize) -> Result<Pool, PoolError> {
        let cores = cores_from_here();
        Pool::start(threads, move |worker| {
            if !cores.is_empty() {
                stay_on(cores[worker % cores.len()]);
            }
        })
    }

    /// A pool whose workers call `place(worker)` first.
    fn start(threads: usize, place: impl Fn(usize) + Clone + Send + 'static) -> Result<Pool, PoolError> {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: Mutex::new(0),
            wake: Condvar::new(),
        });
        check_float_mode();
        // dropped on the way out, it stops the threads that did start
        let mut pool = Pool { shared, workers: Vec::new(), running: Mutex::new(()) };
        for worker in 1..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let place = place.clone();
            let thread = std::thread::Builder::new().name(format!("strata-{worker}")).spawn(move || {
                place(worker);
                check_float_mode();
                work(&shared, worker);
            });
            pool.workers.push(thread.map_err(|cause| PoolError { number: worker + 1, threads, cause })?);
        }
        Ok(pool)
    }

    /// Threads that take part in a job.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(task, worker)` once for every task in `0..tasks`, spread over the threads, and returns when all are
    /// done. `worker` is below [`Pool::threads`] and no two calls run at once with the same worker number.
    ///
    /// # Panics
    /// If a task panics.
    pub fn run(&self, tasks: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() {
            for t in 0..tasks {
                f(t, 0);
            }
            return;
        }
        let _one = self.running.lock().unwrap_or_else(|e| e.into_inner());
        let s = &*self.shared;
        // SAFETY: the lifetime is erased, but this function does not return before every worker has left the job.
        let call: *const (dyn Fn(usize, usize) + Sync) = unsafe { std::mem::transmute(f as *const (dyn Fn(usize, usize) + Sync)) };
        // SAFETY: no worker is busy (the previous `run` waited for them), so nobody reads `job` now.
        unsafe { *s.job.get() = Some(Job { call, tasks }) };
        s.next.store(0, Ordering::Relaxed);
        s.busy.store(self.workers.len(), Ordering::Relaxed);
        s.epoch.fetch_add(1, Ordering::SeqCst);
        if *s.sleepers.lock().unwrap_or_else(|e| e.into_inner()) > 0 {
            s.wake.notify_all();
        }
        let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take_tasks(s, f, tasks, 0)));
        let mut spins = 0usize;
        while s.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let theirs = s.panicked.swap(false, Ordering::Relaxed);
        if let Err(p) = mine {
            std::panic::resume_unwind(p);
        }
        assert!(!theirs, "a task of the thread pool panicked");
    }

    /// Splits `0..n` into about `4 * threads` ranges of at least `grain` items and calls `f(range, worker)` for each.
    pub fn ranges(&self, n: usize, grain: usize, f: &(dyn Fn(std::ops::Range<usize>, usize) + Sync)) {
        if n == 0 {
            return;
        }
        let parts = (n / grain.max(1)).clamp(1, if self.workers.is_empty() { 1 } else { self.threads() * 4 });
        self.run(parts, &|t, w| f(n * t / parts..n * (t + 1) / parts, w));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        {
            let _g = self.shared.sleepers.lock().unwrap_or_else(|e| e.into_inner());
            self.shared.wake.notify_all();
        }
        for w in self.workers.drain(..) {
            let _ = w.join();
        }
    }
}

fn take_tasks(s: &Shared, f: &(dyn Fn(usize, usize) + Sync), tasks: usize, worker: usize) {
    loop {
        let t = s.next.fetch_add(1, Ordering::Relaxed);
        if t >= tasks {
            return;
        }
        f(t, worker);
    }
}

fn work(s: &Shared, worker: usize) {
    let mut seen = 0;
    loop {
        let mut spins = 0;
        while s.epoch.load(Ordering::Acquire) == seen {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let mut sleeping = s.sleepers.lock().unwrap_or_else(|e| e.into_inner());
            *sleeping += 1;
            while s.epoch.load(Ordering::SeqCst) == seen {
                sleeping = s.wake.wait(sleeping).unwrap_or_else(|e| e.into_inner());
            }
            *sleeping -= 1;
        }
        seen = seen.wrapping_add(1);
        if s.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the epoch changed after the owner wrote the job, and the owner waits for `busy` before the next write.
        let job = unsafe { (*s.job.get()).expect("a job is set before the epoch changes") };
        let run = std::panic::AssertUnwindSafe(|| {
            // SAFETY: the closure outlives the job: `run` returns only after `busy` is 0.
            take_tasks(s, unsafe { &*job.call }, job.tasks, worker);
        });
        if std::panic::catch_unwind(run).is_err() {
            s.panicked.store(true, Ordering::Relaxed);
        }
        s.busy.fetch_sub(1, Ordering::Release);
    }
}

/// Subnormals are kept: flush-to-zero and denormals-are-zero must be off (NUMERICS.md section 1).
fn check_float_mode() {
    let tiny = std::hint::black_box(f32::from_bits(1));
    let kept = std::hint::black_box(tiny * 1.0).to_bits() == 1 && std::hint::black_box(f32::MIN_POSITIVE * 0.5) != 0.0;
    assert!(kept, "this thread flushes subnormal floats to zero; the engine's numbers need them");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            for tasks in [0, 1, 2, 7, 100] {
                let seen: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
                for _ in 0..50 {
                    pool.run(tasks, &|t, w| {
                        assert!(w < threads);
                        seen[t].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 50));
            }
        }
    }

    #[test]
    fn ranges_cover_everything_once() {
        let pool = Pool::new(3);
        for n in [0, 1, 5, 64, 1001] {
            let seen: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
            pool.ranges(n, 4, &|r, _| {
                r.for_each(|i| {
                    seen[i].fetch_add(1, Ordering::Relaxed);
                })
            });
            assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.run(8, &|t, _| assert!(t != 3))));
        assert!(r.is_err());
        let n = AtomicU64::new(0);
        pool.run(8, &|_, _| {
            n.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(n.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn pinned_workers_do_the_same_work() {
        let pool = Pool::pinned(3).unwrap();
        let n = AtomicU64::new(0);
        for _ in 0..20 {
            pool.run(9, &|t, _| {
                n.fetch_add(t as u64, Ordering::Relaxed);
            });
        }
        assert_eq!(n.load(Ordering::Relaxed), 20 * 36);
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = Pool::new(2);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let n = AtomicU64::new(0);
        pool.run(64, &|_, _| {
            n.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(n.load(Ordering::Relaxed), 64);
    }
}
