//! Where within a prompt its state is worth keeping.

use super::spacing::Spacing;
use crate::request::Mark;

/// Lengths of a prompt of `prompt` tokens at which a checkpoint is to be made, ascending, and whether it is pinned; `run` of them are
/// run, and the state after `kept` of these is in a checkpoint, or is nothing.
///
/// None is nearer than `least` to another or to `kept`. Where two are, the better one stays: pinned marks, then marks, the later ones
/// first, then the place before the last token (from where the same prompt can be answered again), then multiples of `every`,
/// which keep a quarter of that distance.
pub(crate) fn places(kept: usize, run: usize, prompt: usize, marks: &[Mark], spacing: Spacing) -> Vec<(usize, bool)> {
    let mut chosen: Vec<(usize, bool)> = Vec::new();
    let mut offer = |at: usize, pinned: bool, least: usize| {
        let far = |a: usize, b: usize| a.abs_diff(b) >= least.max(1);
        if run < at && at <= prompt && far(at, kept) && chosen.iter().all(|c| far(at, c.0)) {
            chosen.push((at, pinned));
        }
    };
    let Spacing { every, least } = spacing;
    for pinned in [true, false] {
        marks.iter().rev().filter(|m| m.pinned == pinned).for_each(|m| offer(m.at, pinned, least));
    }
    offer(prompt.saturating_sub(1), false, least);
    if let Some(every) = every {
        (run / every + 1..=prompt / every).for_each(|n| offer(n * every, false, least.max(every / 4)));
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: usize) -> Mark {
        Mark { at, pinned: false }
    }

    #[test]
    fn better_places_push_others_aside() {
        let spacing = Spacing { every: Some(1024), least: 32 };
        // nothing but the text: multiples, and the place before its end
        assert_eq!(places(0, 0, 3000, &[], spacing), [(1024, false), (2048, false), (2999, false)]);
        // turns: the multiple near a mark is left out, and so is the end
        let marks = [Mark { at: 400, pinned: true }, mark(980), mark(2995)];
        assert_eq!(places(0, 0, 3000, &marks, spacing), [(400, true), (980, false), (2048, false), (2995, false)]);
        // a follow-up: only what is new, and only if it is worth it
        assert_eq!(places(2995, 2995, 3200, &[marks[0], marks[1], mark(3195)], spacing), [(3195, false)]);
        assert_eq!(places(2995, 2995, 3020, &[mark(3015)], spacing), []);
        // small turns add up
        assert_eq!(places(2995, 3020, 3040, &[mark(3035)], spacing), [(3035, false)]);
        // a mark beyond the prompt, and one at its start
        assert_eq!(places(0, 0, 20, &[mark(0), mark(500)], Spacing { every: None, least: 16 }), [(19, false)]);
        assert_eq!(places(0, 0, 1, &[], Spacing { every: None, least: 16 }), []);
    }

    #[test]
    fn no_two_are_near_each_other() {
        let mut x = 1u64;
        let mut next = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((x >> 33) % n) as usize
        };
        for _ in 0..2000 {
            let prompt = 1 + next(9000);
            let mut marks: Vec<Mark> = (0..next(12)).map(|_| Mark { at: next(9000), pinned: next(4) == 0 }).collect();
            marks.sort_by_key(|m| m.at);
            let spacing = Spacing { every: [None, Some(1024), Some(2304)][next(3)], least: 16 + next(240) };
            let run = next(prompt as u64);
            let kept = next(run as u64 + 1);
            let p = places(kept, run, prompt, &marks, spacing);
            assert!(p.windows(2).all(|w| w[0].0 + spacing.least <= w[1].0), "{p:?}");
            assert!(p.iter().all(|(at, _)| *at >= kept + spacing.least && *at > run && *at <= prompt));
            // whatever is left out has a better or equal neighbour: the last mark of the prompt is always near one
            if let Some(m) = marks.iter().rev().find(|m| m.at <= prompt && m.at > run) {
                assert!(m.at < kept + spacing.least || p.iter().any(|(at, _)| at.abs_diff(m.at) < spacing.least), "{p:?} {m:?}");
            }
        }
    }
}
