//! `GET /v1/status`: the server at this moment, for people and the page's Monitor. docs/API.md has the meaning of each field.

use crate::app::{App, Shared, internal};
use crate::failure::{Failure, Shape, json_response};
use crate::served::Served;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strata_engine::{Histogram, Status};

/// Rates are over this long.
const WINDOW: Duration = Duration::from_secs(5);
/// At most one sample is kept in this long.
const SPACING: Duration = Duration::from_millis(500);

/// Counts of the last seconds.
#[derive(Default)]
pub struct Recent {
    samples: Mutex<VecDeque<(Instant, Status)>>,
}

impl Recent {
    /// Takes the counts of this moment and gives those of some seconds ago.
    pub fn sample(&self, now: Instant, status: &Status) -> Option<(Duration, Status)> {
        let mut samples = self.samples.lock().unwrap_or_else(|e| e.into_inner());
        while samples.len() > 1 && samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            samples.pop_front();
        }
        let oldest = samples.front().map(|(at, s)| (now.duration_since(*at), s.clone()));
        if samples.back().is_none_or(|(at, _)| now.duration_since(*at) >= SPACING) {
            samples.push_back((now, status.clone()));
        }
        oldest.filter(|(ago, _)| !ago.is_zero())
    }
}

/// `GET /v1/status`.
pub async fn status(State(app): Shared) -> Response<Body> {
    let body = match app.served.get() {
        None => json!({"state": "loading", "uptime_seconds": app.started.elapsed().as_secs_f64()}),
        Some(served) => report(&app, served),
    };
    json_response(StatusCode::OK, &body)
}

/// `GET /health`.
pub async fn health(State(app): Shared) -> Response<Body> {
    let (code, state) = match state(&app) {
        "ready" => (StatusCode::OK, "ok"),
        other => (StatusCode::SERVICE_UNAVAILABLE, other),
    };
    json_response(code, &json!({"status": state}))
}

/// `loading`, `ready` or `stopping`.
fn state(app: &App) -> &'static str {
    match (*app.stopping.borrow(), app.served.get()) {
        (true, _) => "stopping",
        (false, None) => "loading",
        (false, Some(_)) => "ready",
    }
}

fn report(app: &App, served: &Arc<Served>) -> Value {
    let (facts, s) = (served.runner.facts(), served.runner.status());
    let before = served.recent.sample(Instant::now(), &s);
    let rate = |of: fn(&Status) -> u64| match &before {
        Some((ago, then)) => of(&s).saturating_sub(of(then)) as f64 / ago.as_secs_f64(),
        None => 0.0,
    };
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let slots: Vec<Value> = s.slots.iter().enumerate().map(|(id, slot)| slot_json(id, slot)).collect();
    let running = s.slots.iter().filter(|s| s.request.is_some()).count();
    let decoding = s.slots.iter().filter(|s| s.request.is_some() && s.generated > 0).count();
    let times = served.metrics.percentiles().into_iter().map(|(name, p)| {
        let ms = |x: f32| f64::from(x) * 1e3;
        (name.to_owned(), p.map_or(Value::Null, |p| json!({"p50": ms(p.p50), "p90": ms(p.p90), "p99": ms(p.p99)})))
    });
    let all_prompt = s.prompt_tokens + s.cached_tokens;
    json!({
        "state": state(app),
        "model": served.name,
        "context": facts.context,
        "drafts": facts.spec,
        "chat": served.template.is_some(),
        "uptime_seconds": app.started.elapsed().as_secs_f64(),
        "queue": {"waiting": s.waiting, "limit": served.queue},
        "slots": slots,
        "counters": {
            "submitted": s.submitted,
            "completed": s.completed,
            "cancelled": s.cancelled,
            "timed_out": s.timed_out,
            "failed": s.failed,
            "refused": s.refused,
            "prompt_tokens": s.prompt_tokens,
            "cached_tokens": s.cached_tokens,
            "generated_tokens": s.generated_tokens,
            "drafted_tokens": s.drafted_tokens,
            "accepted_tokens": s.accepted_tokens,
            "steps": s.steps,
            "busy_seconds": s.busy.as_secs_f64(),
        },
        "rates": {
            "window_seconds": before.as_ref().map_or(0.0, |(ago, _)| ago.as_secs_f64()),
            "prompt_tokens": rate(|s| s.prompt_tokens),
            "generated_tokens": rate(|s| s.generated_tokens),
            "steps": rate(|s| s.steps),
            "busy": rate(|s| s.busy.as_micros() as u64) / 1e6,
        },
        "batch": {
            "running": running,
            "reading": running - decoding,
            "decoding": decoding,
            "tokens_per_step": share(s.prompt_tokens + s.generated_tokens, s.steps),
        },
        "cache": {
            "queried_tokens": all_prompt,
            "hit_tokens": s.cached_tokens,
            "hit_rate": share(s.cached_tokens, all_prompt),
            "checkpoints": s.cache.checkpoints,
            "bytes": s.cache.bytes,
            "budget_bytes": s.cache.budget,
            "evicted": s.cache.evicted,
            "disk": {
                "files": s.cache.disk.files,
                "bytes": s.cache.disk.bytes,
                "written": s.cache.disk.written,
                "dropped": s.cache.disk.dropped,
                "loaded": s.cache.disk.loaded,
                "refused": s.cache.disk.refused,
            },
        },
        "times_ms": times.collect::<Map<_, _>>(),
        "delays_ms": {"first_step": delay(&s.first_step), "between_steps": delay(&s.between_steps), "step": delay(&s.step)},
        "memory": (served.memory)(),
    })
}

/// Milliseconds; null before any.
fn delay(h: &Histogram) -> Value {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    match h.count() {
        0 => Value::Null,
        _ => json!({"p50": ms(h.quantile(0.5)), "p99": ms(h.quantile(0.99)), "max": ms(h.max())}),
    }
}

pub(crate) fn slot_json(id: usize, slot: &strata_engine::SlotStatus) -> Value {
    let state = match slot.request {
        None => "idle",
        Some(_) if slot.generated == 0 => "reading",
        Some(_) => "decoding",
    };
    json!({"id": id, "request": slot.request, "state": state, "prompt": slot.prompt, "read": slot.read, "generated": slot.generated})
}

/// `GET /metrics`.
pub async fn metrics(State(app): Shared) -> Response<Body> {
    let scraped = app.served().map_err(Failure::from).and_then(|s| s.metrics.scrape().map_err(|_| internal()));
    match scraped {
        Err(failure) => failure.response(Shape::OpenAi),
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_last_seconds() {
        let (recent, start) = (Recent::default(), Instant::now());
        let at = |ms: u64| recent.sample(start + Duration::from_millis(ms), &Status { steps: ms, ..Status::default() });
        assert_eq!(at(0), None, "nothing to compare with");
        for ms in (250..20_000).step_by(250) {
            let (ago, then) = at(ms).unwrap();
            assert_eq!(ms - then.steps, ago.as_millis() as u64, "time and counts belong together");
            assert!(ago <= WINDOW + SPACING && (ago >= WINDOW || then.steps == 0), "{ms}: {ago:?}");
        }
        let (ago, then) = at(100_000).unwrap();
        assert_eq!((ago.as_millis(), then.steps), (100_000 - 19_500, 19_500), "nobody looked for long");
        assert!(recent.samples.lock().unwrap().len() < 20);
    }
}
