//! How many tokens to draft, from measured times: a draft is worth its cost only where the trunk would take longer.
//!
//! A pure state machine, fed with durations. Three costs are estimated as the run goes: a plain step, each further row of a
//! verified window, a drafted token. A drafted token stays in the window if the chance that it is right (the product
//! of the draft's own probabilities, corrected by how often those came true) times a plain step is above the cost of a row.
//! Whether to draft at all is settled by a ledger: every drafting step books the plain steps that its tokens would have
//! taken less the time it took. Debt is limited to a share of the whole time, so speculation that does not pay
//! costs little and is tried again now and then; credit is limited, so a text that turns unpredictable is noticed.
//!
//! Nothing here can change a token: the window only decides how many rows are verified together.

use std::time::Duration;

/// Debt allowed, as a share of the time spent, and in plain steps on top.
const DEBT_SHARE: f64 = 0.008;
const DEBT_STEPS: f64 = 0.8;
/// Most credit, in plain steps.
const CREDIT_STEPS: f64 = 4.0;
/// Plain steps measured before the first draft.
const PLAIN_FIRST: u32 = 3;
/// A plain step is measured again after so many drafting steps.
const REFRESH: u32 = 48;
/// Weight of a measurement below the average, and of one above it.
const DOWN: f64 = 0.5;
const UP: f64 = 0.1;

/// An exponential average that leans to the quick side: what delays a step (cold caches, a busy machine) is not the step's
/// cost. A late measurement counts at most double.
#[derive(Clone, Copy, Debug, Default)]
struct Average(Option<f64>);

impl Average {
    fn add(&mut self, x: f64) {
        self.0 = Some(match self.0 {
            None => x,
            Some(a) if x < a => a + DOWN * (x - a),
            Some(a) => a + UP * (x.min(2.0 * a) - a),
        });
    }
}

/// The cost model. All times are in seconds.
#[derive(Clone, Debug)]
pub(crate) struct DraftLength {
    plain: Average,
    plain_seen: u32,
    row: Average,
    draft: Average,
    /// Sums, fading, of the probabilities of verified drafts and of those that were right.
    promised: f64,
    kept: f64,
    ledger: f64,
    spent: f64,
    since_plain: u32,
    /// The chance that all drafts of this window so far are right.
    chance: f64,
}

impl DraftLength {
    pub fn new() -> DraftLength {
        DraftLength {
            plain: Average::default(),
            plain_seen: 0,
            row: Average::default(),
            draft: Average::default(),
            // one draft's worth of belief in the probabilities as they are
            promised: 1.0,
            kept: 1.0,
            ledger: 0.0,
            spent: 0.0,
            since_plain: 0,
            chance: 1.0,
        }
    }

    /// Whether this step should draft.
    pub fn begin(&mut self) -> bool {
        self.chance = 1.0;
        let Some(plain) = self.plain.0.filter(|_| self.plain_seen >= PLAIN_FIRST) else {
            return false;
        };
        self.since_plain < REFRESH && self.ledger >= -(DEBT_SHARE * self.spent + DEBT_STEPS * plain)
    }

    /// Whether a drafted token with this probability is worth a row of the window.
    pub fn keeps(&mut self, probability: f32) -> bool {
        let Some(plain) = self.plain.0 else { return true };
        let chance = self.chance * (f64::from(probability) * self.kept / self.promised).min(1.0);
        // before any window was measured a row is taken for a third of a step
        let worth = chance * plain > self.row.0.unwrap_or(plain / 3.0);
        if worth {
            self.chance = chance;
        }
        worth
    }

    /// Whether another token is worth drafting, if it is about as certain as drafts have been.
    pub fn goes_on(&self) -> bool {
        // the first window measures: it has one draft
        let (Some(plain), Some(row), Some(draft)) = (self.plain.0, self.row.0, self.draft.0) else { return false };
        self.chance * plain > row + draft
    }

    /// After a step without a draft.
    pub fn plain_step(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        self.plain_seen = self.plain_seen.saturating_add(1);
        self.plain.add(time);
        self.since_plain = 0;
        self.spent += time;
    }

    /// After a step that made `drafts` drafts in `drafting`, verified a window of `rows` rows in `verifying` and got
    /// `tokens` tokens. `promised` are the probabilities of the window's drafts, in order.
    pub fn draft_step(&mut self, drafts: usize, drafting: Duration, rows: usize, verifying: Duration, tokens: usize, promised: &[f32]) {
        let (drafting, verifying) = (drafting.as_secs_f64(), verifying.as_secs_f64());
        let Some(plain) = self.plain.0 else { return };
        if drafts > 0 {
            self.draft.add(drafting / drafts as f64);
        }
        if rows > 1 {
            self.row.add(((verifying - plain) / (rows - 1) as f64).max(0.0));
        } else {
            self.plain.add(verifying);
        }
        for (i, p) in promised.iter().enumerate().take(tokens) {
            // draft i was looked at if all before it were right
            let right = i + 1 < tokens;
            self.promised = self.promised * 0.95 + f64::from(*p);
            self.kept = self.kept * 0.95 + f64::from(u8::from(right));
        }
        self.since_plain += 1;
        self.spent += drafting + verifying;
        self.ledger = (self.ledger + plain * tokens as f64 - drafting - verifying).min(CREDIT_STEPS * plain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine and a text.
    struct World {
        plain: f64,
        row: f64,
        draft: f64,
        /// How often a draft is right, and what probability it is given.
        right: f64,
        said: f32,
    }

    /// Time of `tokens` tokens over the time of as many plain steps.
    fn ratio(w: &World, tokens: usize, d: &mut DraftLength, seed: u64) -> f64 {
        let mut state = seed;
        let mut chance = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let s = Duration::from_secs_f64;
        let (mut done, mut time) = (0, 0.0);
        while done < tokens {
            if !d.begin() {
                d.plain_step(s(w.plain));
                (done, time) = (done + 1, time + w.plain);
                continue;
            }
            let (mut drafts, mut kept) = (0, 0);
            for _ in 0..8 {
                drafts += 1;
                if !d.keeps(w.said) {
                    break;
                }
                kept += 1;
                if !d.goes_on() {
                    break;
                }
            }
            let right = (0..kept).take_while(|_| chance() < w.right).count();
            let (drafting, verifying) = (drafts as f64 * w.draft, w.plain + kept as f64 * w.row);
            d.draft_step(drafts, s(drafting), 1 + kept, s(verifying), 1 + right, &vec![w.said; kept]);
            (done, time) = (done + 1 + right, time + drafting + verifying);
        }
        time / (done as f64 * w.plain)
    }

    #[test]
    fn drafts_that_do_not_pay_cost_little() {
        for (row, draft, right, said) in [(0.8, 0.3, 0.3, 0.3), (0.9, 0.2, 0.5, 0.9), (0.2, 0.9, 0.4, 0.4), (1.0, 1.0, 0.0, 1.0)] {
            for seed in 1..20 {
                let w = World { plain: 0.01, row: row * 0.01, draft: draft * 0.01, right, said };
                let found = ratio(&w, 128, &mut DraftLength::new(), seed);
                assert!(found < 1.0 / 0.965, "row {row}, draft {draft}, right {right}: {found}");
            }
        }
    }

    #[test]
    fn drafts_that_pay_are_made() {
        let w = World { plain: 0.01, row: 0.002, draft: 0.001, right: 0.9, said: 0.9 };
        let found = ratio(&w, 400, &mut DraftLength::new(), 1);
        // eight drafts cost 2.4 + 1 steps and give 1 + 5.1 tokens at best
        assert!(found < 0.65, "{found}");
    }

    #[test]
    fn a_text_that_changes_is_noticed() {
        let mut d = DraftLength::new();
        let w = |right: f64| World { plain: 0.01, row: 0.003, draft: 0.001, right, said: right as f32 };
        assert!(ratio(&w(0.1), 200, &mut d, 1) < 1.05);
        assert!(ratio(&w(0.95), 600, &mut d, 2) < 0.75);
        assert!(ratio(&w(0.1), 600, &mut d, 3) < 1.03);
    }

    #[test]
    fn one_late_measurement_does_not_decide() {
        let mut a = Average::default();
        (0..20).for_each(|_| a.add(1.0));
        a.add(1000.0);
        assert!(a.0.unwrap() < 1.2);
    }
}
