//! Penalties: each step is one rounded f32 operation, so the id's counts and its logit are all that matters.

use super::{History, SamplingParams};

/// Applies the penalties of `params` to the logits of the ids in the window of `history` (one logit for each id of its
/// vocabulary).
pub(super) fn apply(logits: &mut [f32], history: &History, params: &SamplingParams) {
    for (id, _, generated) in history.counts() {
        let l = logits[id as usize];
        // x / 1 and x * 1 are x, and x - 0 is x: a penalty that is off needs no branch
        let mut l = if l > 0.0 { l / params.repetition_penalty } else { l * params.repetition_penalty };
        if generated > 0 {
            l -= generated as f32 * params.frequency_penalty;
            l -= params.presence_penalty;
        }
        logits[id as usize] = l;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Origin;

    fn history(prompt: &[u32], output: &[u32], window: Option<usize>) -> History {
        let mut h = History::new(5, 16, window);
        prompt.iter().for_each(|&t| h.push(t, Origin::Prompt).unwrap());
        output.iter().for_each(|&t| h.push(t, Origin::Generated).unwrap());
        h
    }

    const LOGITS: [f32; 5] = [4.0, -4.0, 3.0, -3.0, 1.0];

    fn penalised(h: &History, p: SamplingParams) -> [f32; 5] {
        let mut l = LOGITS;
        apply(&mut l, h, &p);
        l
    }

    #[test]
    fn repetition_counts_prompt_and_output_once() {
        let h = history(&[0, 0, 1], &[2, 2], None);
        let p = SamplingParams { repetition_penalty: 2.0, ..Default::default() };
        assert_eq!(penalised(&h, p), [2.0, -8.0, 1.5, -3.0, 1.0]);
    }

    #[test]
    fn presence_and_frequency_count_output_only() {
        let h = history(&[0, 1, 2], &[2, 2, 3], None);
        let presence = SamplingParams { presence_penalty: 0.5, ..Default::default() };
        assert_eq!(penalised(&h, presence), [4.0, -4.0, 2.5, -3.5, 1.0]);
        let frequency = SamplingParams { frequency_penalty: 0.5, ..Default::default() };
        assert_eq!(penalised(&h, frequency), [4.0, -4.0, 2.0, -3.5, 1.0]);
        let all = SamplingParams { repetition_penalty: 2.0, ..SamplingParams { presence_penalty: 0.25, ..frequency } };
        assert_eq!(penalised(&h, all), [2.0, -8.0, 0.25, -6.75, 1.0]);
    }

    #[test]
    fn the_window_hides_older_tokens() {
        let h = history(&[0, 1], &[2, 3], Some(2));
        let p = SamplingParams { repetition_penalty: 2.0, penalty_last_n: Some(2), ..Default::default() };
        assert_eq!(penalised(&h, p), [4.0, -4.0, 1.5, -6.0, 1.0]);
    }

    #[test]
    fn a_popped_draft_leaves_no_trace() {
        let mut h = history(&[0], &[2], None);
        let p = SamplingParams { repetition_penalty: 1.3, frequency_penalty: 0.7, ..Default::default() };
        let before = penalised(&h, p);
        h.push(4, Origin::Generated).unwrap();
        assert_ne!(penalised(&h, p), before);
        h.pop();
        assert_eq!(penalised(&h, p), before);
    }
}
