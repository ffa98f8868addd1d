//! Whether guesses are worth their reads: measured.

use std::time::Duration;

/// Occasions to guess, one a layer, that are timed together.
const WINDOW: u32 = 96;
/// Windows that try both at first, and how seldom the worse of the two is tried again later.
const TRIALS: u32 = 4;
const SELDOM: u32 = 8;
/// What lies between two occasions that are further apart is not the model's work.
const PAUSE: Duration = Duration::from_secs(1);

/// A guess that comes true hides a read behind a layer's arithmetic; one that does not takes the disk's time. Which of them weighs more
/// is a matter of the disk, the processor and the text, so both ways are timed: seconds for each streamed expert that was needed.
#[derive(Debug)]
pub(crate) struct Worth {
    /// The present window guesses.
    on: bool,
    windows: u32,
    /// Seconds a streamed expert without and with guesses.
    cost: [Option<f64>; 2],
    asked: u32,
    seconds: f64,
    streamed: u64,
    last: Option<Duration>,
    /// An occasion has come whose experts are not known yet.
    open: bool,
}

impl Default for Worth {
    fn default() -> Self {
        Worth { on: true, windows: 0, cost: [None; 2], asked: 0, seconds: 0.0, streamed: 0, last: None, open: false }
    }
}

impl Worth {
    /// True if the occasion at `now` should be used.
    pub fn ask(&mut self, now: Duration) -> bool {
        let passed = self.last.map(|last| now.saturating_sub(last));
        self.seconds += passed.filter(|t| *t < PAUSE).map_or(0.0, |t| t.as_secs_f64());
        self.last = Some(now);
        if self.asked == WINDOW {
            self.next_window();
        }
        self.asked += 1;
        self.open = true;
        self.on
    }

    /// Something else begins: what lies between the last occasion and the next is not timed.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Takes note of the streamed experts that a layer needed.
    pub fn learn(&mut self, streamed: u64) {
        if std::mem::take(&mut self.open) {
            self.streamed += streamed;
        }
    }

    fn next_window(&mut self) {
        if self.streamed > 0 {
            let now = self.seconds / self.streamed as f64;
            let cost = &mut self.cost[usize::from(self.on)];
            *cost = Some(cost.map_or(now, |before| (before + now) / 2.0));
        }
        (self.asked, self.seconds, self.streamed) = (0, 0.0, 0);
        self.windows += 1;
        self.on = match self.cost {
            [Some(off), Some(on)] if self.windows >= TRIALS => (on <= off) != self.windows.is_multiple_of(SELDOM),
            _ => self.windows.is_multiple_of(2),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of guesses over `windows` in which a layer takes `on` or `off` milliseconds with guesses or without.
    fn share(w: &mut Worth, now: &mut Duration, windows: u32, [off, on]: [u64; 2]) -> f64 {
        let mut used = 0;
        for _ in 0..windows * WINDOW {
            let guesses = w.ask(*now);
            w.learn(5);
            used += u32::from(guesses);
            *now += Duration::from_millis(if guesses { on } else { off });
        }
        f64::from(used) / f64::from(windows * WINDOW)
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_again() {
        let (mut w, mut now) = (Worth::default(), Duration::ZERO);
        assert_eq!(share(&mut w, &mut now, TRIALS, [20, 30]), 0.5);
        let bad = share(&mut w, &mut now, 64, [20, 30]);
        assert!((0.05..0.2).contains(&bad), "{bad}");
        share(&mut w, &mut now, 64, [30, 20]);
        let good = share(&mut w, &mut now, 64, [30, 20]);
        assert!((0.8..0.95).contains(&good), "{good}");
    }

    #[test]
    fn pauses_and_other_work_are_not_timed() {
        let (mut w, mut now) = (Worth::default(), Duration::ZERO);
        for _ in 0..2 * WINDOW {
            w.ask(now);
            w.learn(5);
            // experts of a prompt: no occasion was taken
            w.learn(1_000_000);
            now += Duration::from_secs(3600);
            w.ask(now);
            w.pause();
            w.learn(5);
            now += Duration::from_millis(999);
        }
        assert_eq!(w.cost, [Some(0.0); 2]);
    }
}
