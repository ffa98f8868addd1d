//! The memory plan and what a run came to, as JSON and as text.

use crate::output::bytes;
use serde_json::{Value, json};
use strata_tiers::{Dense, Facts, Plan, Report, TablePlace, Tiers};

/// The plan with every number and its reason.
pub fn plan_json(f: &Facts, p: &Plan) -> Value {
    let line = |l: &strata_tiers::Line| json!({"item": l.item, "kind": l.kind.name(), "bytes": l.bytes, "reason": l.reason});
    json!({
        "ram_bytes": p.ram,
        "ram_is": if f.choices.ram.is_some() { "--ram" } else { f.machine.available_by },
        "lock_limit_bytes": (f.machine.lock_limit < u64::MAX).then_some(f.machine.lock_limit),
        "huge_page_bytes": f.machine.huge_page,
        "swap": f.machine.swap,
        "dense": match p.dense { Dense::Copied => "copied", Dense::Mapped => "mapped" },
        "dense_locked": p.lock_dense,
        "resident_experts": p.resident,
        "resident_bytes": p.resident_bytes,
        "resident_locked": p.lock_experts,
        "streamed_bytes": p.streamed_bytes,
        "ngram": table_name(p.table),
        "ngram_block_bytes": match p.table { TablePlace::Direct { block } => Some(block), _ => None },
        "anonymous_bytes": p.anonymous,
        "locked_bytes": p.locked,
        "total_bytes": p.anonymous + p.locked,
        "streamed_bytes_per_token": p.streamed_per_token,
        "disk_bytes_per_token": p.disk_per_token,
        "lines": p.lines.iter().map(line).collect::<Vec<_>>(),
        "warnings": p.warnings,
    })
}

fn table_name(t: TablePlace) -> &'static str {
    match t {
        TablePlace::Plain => "plain",
        TablePlace::Mapped => "mmap",
        TablePlace::Direct { .. } => "direct",
    }
}

/// The plan as a table.
pub fn plan_text(f: &Facts, p: &Plan) -> Vec<String> {
    let mut out = vec![format!(
        "memory plan for {} ({}), a context of {} tokens",
        bytes(p.ram),
        if f.choices.ram.is_some() { "--ram" } else { f.machine.available_by },
        f.model.context
    )];
    out.push(format!("  {:<20} {:>10}  {:<11} why", "what", "size", "kind"));
    out.extend(p.lines.iter().map(|l| format!("  {:<20} {:>10}  {:<11} {}", l.item, bytes(l.bytes), l.kind.name(), l.reason)));
    let mut total = |item: &str, n: u64, why: &str| out.push(format!("  {item:<20} {:>10}  {why}", bytes(n)));
    total("anonymous", p.anonymous, "RssAnon at its peak");
    total("locked", p.locked, "file pages that are locked");
    total("anonymous + locked", p.anonymous + p.locked, "what cannot be given back; other file pages come and go");
    total("expert bytes a token", p.streamed_per_token, "of experts that are not resident, if each is as likely as the next");
    total("disk bytes a token", p.disk_per_token, "of them not in the page cache either, and table rows");
    out.extend(p.warnings.iter().map(|w| format!("  warning: {w}")));
    out
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The plan and what came of it.
pub fn report_json(t: &Tiers) -> Value {
    let (r, p) = (t.report(), t.plan());
    let swap_locked = if p.lock_dense { t.facts().model.dense } else { 0 };
    json!({
        "plan": plan_json(t.facts(), p),
        "measured": {
            "anonymous_bytes": r.anonymous,
            "locked_bytes": r.locked,
            "locked_file_bytes": r.locked.saturating_sub(swap_locked),
            "total_bytes": r.anonymous + r.locked.saturating_sub(swap_locked),
            "total_to_plan": share(r.anonymous + r.locked.saturating_sub(swap_locked), p.anonymous + p.locked),
            "file_bytes": r.file,
            "read_bytes": r.read,
            "major_faults": r.major_faults,
        },
        "experts": r.experts.map(|e| json!({
            "needed": e.needed,
            "resident": e.resident,
            "resident_share": share(e.resident, e.needed),
            "streamed": e.streamed,
            "guessed": e.predicted,
            "guessed_share": share(e.predicted, e.streamed),
            "guesses": e.guesses,
            "probed": e.probed,
            "in_page_cache": e.in_memory,
            "in_page_cache_share": share(e.in_memory, e.probed),
            "streamed_bytes": e.streamed_bytes,
            "advised_bytes": e.advised_bytes,
        })),
        "ngram": r.rows.map(|n| json!({
            "rows": n.rows,
            "cached": n.cached,
            "cached_share": share(n.cached, n.rows),
            "repeated": n.repeated,
            "late": n.late,
            "reads": n.reads,
            "read_bytes": n.read_bytes,
            "sent_again": n.again,
        })),
        "notes": r.notes,
    })
}

/// A line for the statistics of an answer; `None` where nothing streams.
pub fn line(t: &Tiers) -> Option<String> {
    let r: Report = t.report();
    let percent = |part, whole| share(part, whole).map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
    let mut parts = Vec::new();
    if let Some(e) = r.experts.filter(|e| e.streamed > 0) {
        parts.push(format!(
            "experts {} resident, of the others {} guessed, {} in the page cache",
            percent(e.resident, e.needed),
            percent(e.predicted, e.streamed),
            percent(e.in_memory, e.probed)
        ));
    }
    if let Some(n) = r.rows {
        parts.push(format!("table rows {} cached, {} read", percent(n.cached, n.rows), bytes(n.read_bytes)));
    }
    if parts.is_empty() {
        return None;
    }
    parts.push(format!(
        "{} read from storage, {} major faults; {} anonymous, {} locked, {} file pages",
        bytes(r.read),
        r.major_faults,
        bytes(r.anonymous),
        bytes(r.locked),
        bytes(r.file)
    ));
    Some(format!("memory: {}", parts.join("; ")))
}
