//! Counts and times for Prometheus, under vLLM's names where it has them, and the newest times for the status.

use crate::generate::FinishReason;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use strata_engine::Runner;

/// Seconds: bounds of the histograms of whole requests, and of single tokens.
const LONG: [f64; 16] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0];
const SHORT: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Times kept for percentiles.
const KEPT: usize = 2048;

/// What is counted and timed.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    first_token: Timing,
    token: Timing,
    whole: Timing,
    queue: Timing,
    prefill: Histogram,
    decode: Histogram,
    success: Family<Finished, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Finished {
    finished_reason: &'static str,
}

/// A histogram with its newest values.
#[derive(Debug)]
struct Timing {
    all: Histogram,
    newest: Mutex<(Vec<f32>, usize)>,
}

/// Percentiles of the newest times, in seconds; `None` before the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    pub p50: f32,
    pub p90: f32,
    pub p99: f32,
}

impl Timing {
    fn new(bounds: &[f64]) -> Timing {
        Timing { all: Histogram::new(bounds.iter().copied()), newest: Mutex::new((Vec::new(), 0)) }
    }

    fn add(&self, time: Duration) {
        self.all.observe(time.as_secs_f64());
        let mut newest = self.newest.lock().unwrap_or_else(|e| e.into_inner());
        let (values, next) = &mut *newest;
        if values.len() < KEPT {
            values.push(time.as_secs_f32());
        } else {
            values[*next] = time.as_secs_f32();
            *next = (*next + 1) % KEPT;
        }
    }

    fn percentiles(&self) -> Option<Percentiles> {
        let mut values = self.newest.lock().unwrap_or_else(|e| e.into_inner()).0.clone();
        values.sort_unstable_by(f32::total_cmp);
        // the nearest rank: the smallest value that so many percent do not exceed
        let at = |percent: usize| Some(values[(values.len() * percent).div_ceil(100).checked_sub(1)?]);
        Some(Percentiles { p50: at(50)?, p90: at(90)?, p99: at(99)? })
    }
}

impl Metrics {
    /// Metrics of one model.
    pub fn new(model: &str, runner: &Runner) -> Metrics {
        let mut registry = Registry::with_labels([("model_name".into(), model.to_owned().into())].into_iter());
        let (first_token, token, whole, queue) = (Timing::new(&LONG), Timing::new(&SHORT), Timing::new(&LONG), Timing::new(&LONG));
        let (prefill, decode) = (Histogram::new(LONG), Histogram::new(LONG));
        let success = Family::default();
        for (name, help, histogram) in [
            ("vllm:time_to_first_token_seconds", "From a request's coming to its first token", &first_token.all),
            ("vllm:inter_token_latency_seconds", "Between two tokens of an answer", &token.all),
            ("vllm:time_per_output_token_seconds", "Between two tokens of an answer", &token.all),
            ("vllm:e2e_request_latency_seconds", "From a request's coming to its end", &whole.all),
            ("vllm:request_queue_time_seconds", "Wait for a slot", &queue.all),
            ("vllm:request_prefill_time_seconds", "From the slot to the first token", &prefill),
            ("vllm:request_decode_time_seconds", "From the first token to the last", &decode),
        ] {
            registry.register(name, help, histogram.clone());
        }
        registry.register("vllm:request_success", "Requests that ended, by reason", success.clone());
        registry.register_collector(Box::new(OfRunner(runner.clone())));
        Metrics { registry, first_token, token, whole, queue, prefill, decode, success }
    }

    /// The text of a scrape.
    ///
    /// # Errors
    /// A value could not be written.
    pub fn scrape(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    pub(crate) fn queued(&self, waited: Duration) {
        self.queue.add(waited);
    }

    /// A first token, so long after the request came.
    pub(crate) fn first_token(&self, after: Duration) {
        self.first_token.add(after);
    }

    /// Another token, so long after the one before.
    pub(crate) fn next_token(&self, after: Duration) {
        self.token.add(after);
    }

    pub(crate) fn ended(&self, whole: Duration, usage: &strata_engine::Usage) {
        self.whole.add(whole);
        self.prefill.observe(usage.prefill.as_secs_f64());
        self.decode.observe(usage.decode.as_secs_f64());
    }

    pub(crate) fn finished(&self, reason: &FinishReason) {
        let finished_reason = match reason {
            FinishReason::Stop | FinishReason::StopString(_) | FinishReason::ToolCalls => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled | FinishReason::Deadline | FinishReason::Stopping => "abort",
            FinishReason::Failed(_) => "error",
        };
        self.success.get_or_create(&Finished { finished_reason }).inc();
    }

    /// Percentiles of the newest times: to the first token, between tokens, of whole requests, in the queue.
    pub fn percentiles(&self) -> [(&'static str, Option<Percentiles>); 4] {
        [("first_token", &self.first_token), ("token", &self.token), ("request", &self.whole), ("queue", &self.queue)]
            .map(|(name, t)| (name, t.percentiles()))
    }
}

/// The runner's own counts, read at each scrape.
struct OfRunner(Runner);

impl fmt::Debug for OfRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfRunner")
    }
}

impl Collector for OfRunner {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let (s, facts) = (self.0.status(), self.0.facts());
        let running: Vec<_> = s.slots.iter().filter(|s| s.request.is_some()).collect();
        let cells: usize = running.iter().map(|s| s.read + s.generated).sum();
        let kv = cells as f64 / (facts.context * facts.slots).max(1) as f64;
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("vllm:num_requests_running", "Requests with a slot.", running.len() as f64)?;
        gauge("vllm:num_requests_waiting", "Requests that wait for a slot.", s.waiting as f64)?;
        gauge("vllm:kv_cache_usage_perc", "Share of all slots' cells in use, 0 to 1.", kv)?;
        gauge(
            "strata:schedule_delay_p99_seconds",
            "99 % of requests with a free slot waited no longer.",
            s.first_step.quantile(0.99).as_secs_f64(),
        )?;
        gauge("strata:slots", "Sequences there is memory for.", facts.slots as f64)?;
        gauge("strata:prefix_cache_bytes", "Memory of the prefix cache.", s.cache.bytes as f64)?;
        gauge("strata:prefix_cache_disk_bytes", "Files of the prefix cache.", s.cache.disk.bytes as f64)?;
        let mut counter = |name: &str, help: &str, value: f64| {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        for (name, help, value) in [
            ("vllm:prompt_tokens", "Tokens of prompts, those of the cache included.", s.prompt_tokens + s.cached_tokens),
            ("vllm:generation_tokens", "Tokens drawn.", s.generated_tokens),
            ("vllm:prefix_cache_queries", "Tokens of prompts looked up in the prefix cache.", s.prompt_tokens + s.cached_tokens),
            ("vllm:prefix_cache_hits", "Tokens of prompts found in the prefix cache.", s.cached_tokens),
            ("vllm:spec_decode_num_draft_tokens", "Tokens drafted.", s.drafted_tokens),
            ("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that were right.", s.accepted_tokens),
            ("strata:prompt_tokens_read", "Tokens of prompts that were run.", s.prompt_tokens),
            ("strata:steps", "Steps of the batch.", s.steps),
            ("strata:prefix_cache_evictions", "States that made room for others.", s.cache.evicted),
            ("strata:prefix_cache_files_written", "States written to disk.", s.cache.disk.written),
            ("strata:prefix_cache_files_refused", "Files on disk that could not be used.", s.cache.disk.refused),
            ("strata:requests_submitted", "Requests taken.", s.submitted),
            ("strata:requests_completed", "Requests that ended by themselves.", s.completed),
            ("strata:requests_cancelled", "Requests cancelled.", s.cancelled),
            ("strata:requests_timed_out", "Requests past their deadline.", s.timed_out),
            ("strata:requests_failed", "Requests that failed.", s.failed),
            ("strata:requests_refused", "Requests refused, the queue being full.", s.refused),
        ] {
            counter(name, help, value as f64)?;
        }
        counter("strata:busy_seconds", "Time spent in steps.", s.busy.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_the_newest() {
        let t = Timing::new(&SHORT);
        assert_eq!(t.percentiles(), None);
        (0..10_000).for_each(|i| t.add(Duration::from_millis(if i < 10_000 - KEPT { 9_000_000 } else { (i - (10_000 - KEPT)) as u64 })));
        let p = t.percentiles().unwrap();
        assert!((p.p50 - 1.023).abs() < 1e-6 && (p.p90 - 1.843).abs() < 1e-6 && (p.p99 - 2.027).abs() < 1e-6, "{p:?}");
    }
}
