//! Experts that are not resident: reads are started when a layer's experts are known, and before, when they can be guessed.
//!
//! All of it is advice to the system about pages of the mapped file. What is computed never depends on it.

use crate::pages::{Stretch, in_memory, will_need};
use crate::worth::Worth;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use strata_model::ExpertWatch;

/// Counts since the model was bound. An expert counts once for each layer of each pass that needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertCounts {
    /// Experts needed.
    pub needed: u64,
    /// Of them, in memory for good.
    pub resident: u64,
    /// The others.
    pub streamed: u64,
    /// Of the streamed ones, guessed by the layer before.
    pub predicted: u64,
    /// Of the streamed ones, in the page cache when they were needed; `probed` is how many were looked at.
    pub in_memory: u64,
    pub probed: u64,
    /// Guesses of experts that are not resident.
    pub guesses: u64,
    /// Bytes of streamed experts that were needed.
    pub streamed_bytes: u64,
    /// Bytes asked for ahead, guessed or known.
    pub advised_bytes: u64,
}

#[derive(Default)]
struct Counters {
    needed: AtomicU64,
    resident: AtomicU64,
    predicted: AtomicU64,
    in_memory: AtomicU64,
    probed: AtomicU64,
    guesses: AtomicU64,
    streamed_bytes: AtomicU64,
    advised_bytes: AtomicU64,
}

fn add(to: &AtomicU64, n: u64) {
    to.fetch_add(n, Ordering::Relaxed);
}

/// Rows of a call up to which guesses are made: more rows need most of the experts anyway, and a guess costs a product with a router.
const GUESS_ROWS: usize = 16;
/// What the computing thread asks for itself before it goes on; the helper asks for the rest.
const AT_ONCE: u64 = 64 << 20;
/// Stretches that may wait for the helper.
const QUEUE: usize = 1 << 14;

/// The experts of a layer.
struct Layer {
    /// The first expert of each tensor, which gives the stride too.
    tensors: Vec<Stretch>,
    experts: usize,
    resident: usize,
    /// Bit sets over experts: guessed for the coming pass; needed by the present one.
    guessed: Vec<u64>,
    now: Vec<u64>,
}

struct Waiting {
    known: VecDeque<Stretch>,
    guessed: VecDeque<Stretch>,
    stop: bool,
}

struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    counters: Counters,
}

/// The watch of a model whose experts are not all resident.
pub(crate) struct LookAhead {
    layers: Mutex<Vec<Option<Layer>>>,
    /// Of guesses; locked after the layers where both are.
    worth: Mutex<Worth>,
    since: Instant,
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
    /// Bytes that may be asked for at a time.
    window: u64,
    guess: bool,
    /// The system says truly which pages are in memory.
    probe: bool,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LookAhead {
    /// A watch that asks for up to `window` bytes at a time. Without a helper thread (the system may refuse one) it asks for what is
    /// known only.
    pub fn new(window: u64, guess: bool, probe: bool) -> LookAhead {
        let queue = || VecDeque::with_capacity(QUEUE);
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting { known: queue(), guessed: queue(), stop: false }),
            wake: Condvar::new(),
            counters: Counters::default(),
        });
        let theirs = Arc::clone(&shared);
        let helper = std::thread::Builder::new().name("strata-ahead".into()).spawn(move || help(&theirs)).ok();
        LookAhead {
            layers: Mutex::default(),
            worth: Mutex::default(),
            since: Instant::now(),
            shared,
            guess: guess && helper.is_some(),
            helper,
            window,
            probe,
        }
    }

    /// Adds a tensor of `experts` experts of `layer`, of which the first `resident` stay in memory.
    pub fn add(&self, layer: usize, bytes: &[u8], experts: usize, resident: usize) {
        let mut layers = lock(&self.layers);
        if layers.len() <= layer {
            layers.resize_with(layer + 1, || None);
        }
        let words = experts.div_ceil(64);
        let l = layers[layer].get_or_insert_with(|| Layer {
            tensors: Vec::new(),
            experts,
            resident,
            guessed: vec![0; words],
            now: vec![0; words],
        });
        l.tensors.push(Stretch { at: bytes.as_ptr() as usize, len: bytes.len() / experts.max(1) });
    }

    pub fn counts(&self) -> ExpertCounts {
        let c = &self.shared.counters;
        let of = |x: &AtomicU64| x.load(Ordering::Relaxed);
        ExpertCounts {
            needed: of(&c.needed),
            resident: of(&c.resident),
            streamed: of(&c.needed) - of(&c.resident),
            predicted: of(&c.predicted),
            in_memory: of(&c.in_memory),
            probed: of(&c.probed),
            guesses: of(&c.guesses),
            streamed_bytes: of(&c.streamed_bytes),
            advised_bytes: of(&c.advised_bytes),
        }
    }
}

impl Layer {
    fn expert(&self, id: usize) -> impl Iterator<Item = Stretch> {
        self.tensors.iter().map(move |t| Stretch { at: t.at + id * t.len, len: t.len })
    }

    fn expert_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.len as u64).sum()
    }
}

/// The members of a bit set, ascending.
fn members(set: &[u64]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(w, bits)| {
        let mut bits = *bits;
        std::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(w * 64 + bit)
        })
    })
}

fn fill(set: &mut [u64], ids: &[u32]) {
    set.fill(0);
    for id in ids {
        if let Some(word) = set.get_mut(*id as usize / 64) {
            *word |= 1 << (id % 64);
        }
    }
}

impl ExpertWatch for LookAhead {
    fn needed(&self, layer: usize, ids: &[u32]) {
        let mut layers = lock(&self.layers);
        let Some(l) = layers.get_mut(layer).and_then(Option::as_mut) else { return };
        let mut now = std::mem::take(&mut l.now);
        fill(&mut now, ids);
        let c = &self.shared.counters;
        let each = l.expert_bytes();
        let (mut needed, mut resident, mut predicted, mut probed, mut here) = (0, 0, 0, 0, 0);
        let mut advised = 0;
        let mut waiting = None;
        for id in members(&now) {
            needed += 1;
            if id < l.resident {
                resident += 1;
                continue;
            }
            let guessed = l.guessed[id / 64] >> (id % 64) & 1 == 1;
            predicted += u64::from(guessed);
            let warm = self.probe.then(|| l.expert(id).map(in_memory).try_fold(true, |all, one| Some(all && one?))).flatten();
            probed += u64::from(warm.is_some());
            here += u64::from(warm == Some(true));
            // what was guessed is on its way already
            if warm == Some(true) || (guessed && self.guess) || advised + each > self.window.max(each) {
                continue;
            }
            advised += each;
            if advised <= AT_ONCE || self.helper.is_none() {
                l.expert(id).for_each(will_need);
            } else {
                let w = waiting.get_or_insert_with(|| lock(&self.shared.waiting));
                push(&mut w.known, l.expert(id));
            }
        }
        l.now = now;
        lock(&self.worth).learn(needed - resident);
        l.guessed.fill(0);
        if let Some(w) = waiting {
            drop(w);
            self.shared.wake.notify_one();
        }
        add(&c.needed, needed);
        add(&c.resident, resident);
        add(&c.predicted, predicted);
        add(&c.probed, probed);
        add(&c.in_memory, here);
        add(&c.streamed_bytes, (needed - resident) * each);
        add(&c.advised_bytes, advised);
    }

    fn wants(&self, layer: usize, rows: usize) -> bool {
        let streams = |l: &Layer| l.resident < l.experts;
        if !self.guess || !lock(&self.layers).get(layer).and_then(Option::as_ref).is_some_and(streams) {
            return false;
        }
        let mut worth = lock(&self.worth);
        if rows > GUESS_ROWS {
            worth.pause();
            return false;
        }
        worth.ask(self.since.elapsed())
    }

    fn predicted(&self, layer: usize, ids: &[u32]) {
        let mut layers = lock(&self.layers);
        let Some(l) = layers.get_mut(layer).and_then(Option::as_mut) else { return };
        let mut guessed = std::mem::take(&mut l.guessed);
        fill(&mut guessed, ids);
        let mut w = lock(&self.shared.waiting);
        // guesses of a layer that has been computed are of no use any more
        w.guessed.clear();
        let mut n = 0;
        for id in members(&guessed).filter(|id| *id >= l.resident) {
            n += 1;
            push(&mut w.guessed, l.expert(id));
        }
        drop(w);
        add(&self.shared.counters.guesses, n);
        add(&self.shared.counters.advised_bytes, n * l.expert_bytes());
        l.guessed = guessed;
        self.shared.wake.notify_one();
    }
}

/// Adds stretches while the queue has room that it need not be moved for.
fn push(queue: &mut VecDeque<Stretch>, all: impl Iterator<Item = Stretch>) {
    for s in all {
        if queue.len() < QUEUE {
            queue.push_back(s);
        }
    }
}

/// The helper: asks for what waits, what is known before what is guessed.
fn help(shared: &Shared) {
    loop {
        let next = {
            let mut w = lock(&shared.waiting);
            loop {
                if w.stop {
                    return;
                }
                if let Some(s) = w.known.pop_front().or_else(|| w.guessed.pop_front()) {
                    break s;
                }
                w = shared.wake.wait(w).unwrap_or_else(PoisonError::into_inner);
            }
        };
        will_need(next);
    }
}

impl Drop for LookAhead {
    fn drop(&mut self) {
        lock(&self.shared.waiting).stop = true;
        self.shared.wake.notify_all();
        if let Some(h) = self.helper.take() {
            let _ = h.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_sets() {
        let mut set = vec![0; 2];
        fill(&mut set, &[3, 64, 3, 127, 500]);
        assert_eq!(members(&set).collect::<Vec<_>>(), [3, 64, 127]);
        fill(&mut set, &[]);
        assert_eq!(members(&set).count(), 0);
    }

    #[test]
    fn experts_are_counted_once_a_pass() {
        let (gate, down) = (vec![0u8; 100 * 64], vec![0u8; 100 * 32]);
        let look = LookAhead::new(1 << 20, true, false);
        look.add(2, &gate, 100, 40);
        look.add(2, &down, 100, 40);
        look.add(4, &down, 100, 100);
        assert!(look.wants(2, 1) && !look.wants(2, GUESS_ROWS + 1) && !look.wants(1, 1) && !look.wants(3, 1) && !look.wants(4, 1));
        // 39 is resident, 41 is guessed and needed, 50 guessed in vain, 99 not guessed
        look.predicted(2, &[39, 41, 50, 41]);
        look.needed(2, &[39, 41, 99, 41]);
        let c = look.counts();
        assert_eq!((c.needed, c.resident, c.streamed, c.predicted, c.guesses), (3, 1, 2, 1, 2));
        assert_eq!((c.streamed_bytes, c.advised_bytes, c.probed), (2 * 96, 2 * 96 + 96, 0));
        // a guess holds for one pass
        look.needed(2, &[41]);
        look.needed(7, &[41]);
        let c = look.counts();
        assert_eq!((c.needed, c.predicted), (4, 1));
    }
}
