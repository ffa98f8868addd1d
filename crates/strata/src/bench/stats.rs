//! Medians and spreads of samples.

use serde_json::{Value, json};

/// What some samples come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Median distance from the median.
    pub mad: f64,
}

fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

impl Stats {
    pub fn of(samples: &[f64]) -> Stats {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let m = median(&sorted);
        let mut away: Vec<f64> = sorted.iter().map(|x| (x - m).abs()).collect();
        away.sort_by(f64::total_cmp);
        let end = |x: Option<&f64>| x.copied().unwrap_or(0.0);
        Stats { median: m, min: end(sorted.first()), max: end(sorted.last()), mad: median(&away) }
    }
}

/// Puts median, spread and the samples themselves into a row.
pub fn put(row: &mut Value, unit: &str, samples: &[f64]) {
    let s = Stats::of(samples);
    for (name, x) in [("median", s.median), ("min", s.min), ("max", s.max), ("mad", s.mad)] {
        row[format!("{unit}_{name}")] = json!(x);
    }
    row[format!("{unit}_samples")] = json!(samples);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(Stats::of(&[3.0, 1.0, 100.0]), Stats { median: 3.0, min: 1.0, max: 100.0, mad: 2.0 });
        assert_eq!(Stats::of(&[4.0, 2.0]).median, 3.0);
        assert_eq!(Stats::of(&[]), Stats { median: 0.0, min: 0.0, max: 0.0, mad: 0.0 });
    }
}
