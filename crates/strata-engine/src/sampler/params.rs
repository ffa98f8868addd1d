//! What a request may ask of the sampler.

use thiserror::Error;

/// Sampling parameters of one request. The default draws from the model's own distribution with seed 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits. 0 is greedy; otherwise at least [`SamplingParams::MIN_TEMPERATURE`].
    pub temperature: f32,
    /// Keeps the k best tokens. 0 is off; 1 is greedy.
    pub top_k: u32,
    /// Keeps the shortest list of best tokens with this share of the mass, never fewer than one. 1 is off.
    pub top_p: f32,
    /// Drops tokens with less than this share of the best token's mass. 0 is off.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in the context (prompt and output). 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of generated tokens. 0 is off.
    pub presence_penalty: f32,
    /// Subtracted once for each time a token was generated. 0 is off.
    pub frequency_penalty: f32,
    /// How many of the newest tokens of the context the penalties see. `None`: all of them; `Some(0)`: none.
    pub penalty_last_n: Option<usize>,
    /// Key of the draws.
    pub seed: u64,
    /// `Some(n)` asks for the token's log-probability and those of the n most probable tokens.
    pub logprobs: Option<u8>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: None,
            seed: 0,
            logprobs: None,
        }
    }
}

/// A parameter outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("{field} must be {allowed}, found {found}")]
pub struct ParamError {
    /// The field of [`SamplingParams`].
    pub field: &'static str,
    /// Its range, in words.
    pub allowed: &'static str,
    /// The value given.
    pub found: f32,
}

impl SamplingParams {
    /// The least temperature other than 0: below it a quotient of ordinary logits says no more than greedy does.
    pub const MIN_TEMPERATURE: f32 = 1e-5;

    /// Checks each field.
    ///
    /// # Errors
    /// Names the first field that is out of range or not a finite number.
    pub fn validate(&self) -> Result<(), ParamError> {
        let check = |field, found: f32, ok: bool, allowed| if ok { Ok(()) } else { Err(ParamError { field, allowed, found }) };
        let unit = |v: f32| (0.0..=1.0).contains(&v);
        let two = |v: f32| (-2.0..=2.0).contains(&v);
        let (t, rep) = (self.temperature, self.repetition_penalty);
        let warm = (Self::MIN_TEMPERATURE..=f32::MAX).contains(&t);
        check("temperature", t, t == 0.0 || warm, "0 (greedy) or a finite number of at least 1e-5")?;
        check("top_p", self.top_p, unit(self.top_p), "from 0 to 1 (1 is off)")?;
        check("min_p", self.min_p, unit(self.min_p), "from 0 to 1 (0 is off)")?;
        check("repetition_penalty", rep, rep > 0.0 && rep.is_finite(), "a finite number above 0 (1 is off)")?;
        check("presence_penalty", self.presence_penalty, two(self.presence_penalty), "from -2 to 2 (0 is off)")?;
        check("frequency_penalty", self.frequency_penalty, two(self.frequency_penalty), "from -2 to 2 (0 is off)")
    }

    /// Whether the draw is an argmax.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// Whether a [`History`](super::History) is needed.
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Set = fn(&mut SamplingParams, f32);

    #[test]
    fn each_field_has_its_range() {
        const NAN: f32 = f32::NAN;
        const INF: f32 = f32::INFINITY;
        let fields: [(&str, Set, &[f32], &[f32]); 6] = [
            ("temperature", |p, v| p.temperature = v, &[0.0, -0.0, 1e-5, 1.0, 50.0], &[-1.0, 1e-6, NAN, INF, -INF]),
            ("top_p", |p, v| p.top_p = v, &[0.0, 0.5, 1.0], &[-0.1, 1.001, NAN, INF]),
            ("min_p", |p, v| p.min_p = v, &[0.0, 0.5, 1.0], &[-0.1, 1.001, NAN, INF]),
            ("repetition_penalty", |p, v| p.repetition_penalty = v, &[0.5, 1.0, 3.0], &[0.0, -1.0, NAN, INF]),
            ("presence_penalty", |p, v| p.presence_penalty = v, &[-2.0, 0.0, 2.0], &[-2.1, 2.1, NAN, INF]),
            ("frequency_penalty", |p, v| p.frequency_penalty = v, &[-2.0, 0.0, 2.0], &[-2.1, 2.1, NAN, -INF]),
        ];
        for (field, set, good, bad) in fields {
            for &v in good {
                let mut p = SamplingParams::default();
                set(&mut p, v);
                assert_eq!(p.validate(), Ok(()), "{field} {v}");
            }
            for &v in bad {
                let mut p = SamplingParams::default();
                set(&mut p, v);
                let e = p.validate().expect_err(field);
                assert_eq!((e.field, e.found.to_bits()), (field, v.to_bits()));
            }
        }
    }

    #[test]
    fn the_message_names_field_range_and_value() {
        let e = SamplingParams { top_p: 1.5, ..Default::default() }.validate().unwrap_err();
        assert_eq!(e.to_string(), "top_p must be from 0 to 1 (1 is off), found 1.5");
    }
}
