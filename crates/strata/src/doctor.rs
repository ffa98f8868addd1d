//! `strata doctor`: this machine, the ops it gets, the model's sizes, and every switch.

use crate::cli::DoctorArgs;
use crate::error::CliError;
use crate::load::{Loaded, Space};
use crate::{memory, output, settings};
use clap::ArgMatches;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::fs;
use std::process::ExitCode;
use strata_cpu::simd::Simd;
use strata_gpu::defaults::Dispatch;
use strata_gpu::driver::{self, DeviceInfo};
use strata_model::{Config, LayerKind};
use strata_ops::qsa::kv::KvKind;

/// Op families, and the suites of `strata parity` that hold their fast code to the definitions.
const OPS: [(&str, &str); 6] = [
    ("matrix products, expert stacks", "matmul_parity"),
    ("norms, gates, hyper-connections, routing", "ops_parity"),
    ("gated DeltaNet, convolutions, n-gram module", "ops_parity"),
    ("block scores of the sparse attention", "qsa_scores_parity"),
    ("top-k of the sparse attention", "qsa_topk_active_parity"),
    ("attention over the KV cache", "qsa_attn_parity"),
];

/// Prints the report.
///
/// # Errors
/// Settings or a model file that cannot be used: what a run with them would say.
pub fn run(args: &DoctorArgs, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    args.sampling.params(None)?;
    let model = Loaded::open(&args.engine)?;
    let mut values = settings::values(&args.engine);
    values.extend(settings::values(&args.sampling));
    let settings = settings::report("doctor", matches, &values);
    let level = args.engine.simd.name();
    let capacity = args.engine.ctx.unwrap_or(model.config.context.min(crate::chat::CONTEXT));
    let facts = model.facts(&args.engine, Space::of(capacity))?;
    let plan = strata_tiers::plan(&facts);
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cpu": {
            "model": cpu_model(),
            "architecture": std::env::consts::ARCH,
            "logical_cores": std::thread::available_parallelism().map_or(1, |n| n.get()),
            "features": features(),
            "simd_available": Simd::available().iter().map(|s| s.name()).collect::<Vec<_>>(),
            "simd": level,
            "threads": args.engine.threads,
            "keeps_subnormals": keeps_subnormals(),
        },
        "memory": memory(),
        "ops": OPS.iter().map(|(name, suite)| json!({"ops": name, "level": level, "exact": true, "parity": suite})).collect::<Vec<_>>(),
        "gpu": gpu(),
        "model": sizes(&model),
        "plan": memory::plan_json(&facts, &plan),
        "settings": settings,
    });
    if args.json {
        output::print_json(&report)?
    } else {
        output::print(&as_text(&report, &memory::plan_text(&facts, &plan)))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Drivers and compilers of GPU kernels, and for each card the dispatch it gets.
fn gpu() -> Value {
    let found = driver::probe();
    let card = |info: &DeviceInfo| {
        let dispatch = Dispatch::for_device(info);
        let value = |v: &strata_gpu::defaults::Value| json!({"switch": v.name, "value": v.value, "origin": v.origin.name()});
        json!({
            "name": info.name,
            "arch": info.arch,
            "dispatch": dispatch.values().iter().map(value).collect::<Vec<_>>(),
            "notes": dispatch.notes(),
        })
    };
    json!({
        "looked_for": found.iter().map(|p| json!({"what": p.what, "found": p.found, "detail": p.detail})).collect::<Vec<_>>(),
        "cards": found.iter().flat_map(|p| &p.devices).map(card).collect::<Vec<_>>(),
    })
}

/// The CPU's name, where the system tells.
pub fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Features that kernels use or may come to use.
fn features() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! look {
            ($($name:tt),*) => { $(if is_x86_feature_detected!($name) { found.push($name); })* };
        }
        look!(
            "sse4.2",
            "avx",
            "f16c",
            "fma",
            "avx2",
            "avxvnni",
            "avx512f",
            "avx512bw",
            "avx512dq",
            "avx512vl",
            "avx512vnni",
            "avx512vbmi",
            "avx512bitalg",
            "gfni",
            "avx512bf16"
        );
    }
    found
}

/// Total and available memory in bytes, where the system tells.
fn memory() -> Value {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        let line = info.lines().find(|l| l.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()?.saturating_mul(1024))
    };
    json!({"total_bytes": field("MemTotal:"), "available_bytes": field("MemAvailable:")})
}

/// The engine's numbers need subnormal floats: a thread that flushes them refuses to start.
fn keeps_subnormals() -> bool {
    std::hint::black_box(f32::from_bits(1)) * std::hint::black_box(1.0) != 0.0
}

/// What the model takes: weights, and memory of a sequence.
fn sizes(model: &Loaded) -> Value {
    let c = &model.config;
    let mut by_type: Map<String, Value> = Map::new();
    for t in model.gguf.tensors().chain(model.mtp.iter().flat_map(|g| g.tensors())) {
        let e = by_type.entry(t.dtype.name()).or_insert(json!(0));
        *e = json!(e.as_u64().unwrap_or(0) + t.byte_len);
    }
    let count = |kind: LayerKind| c.layers.iter().filter(|k| **k == kind).count();
    let kv: Map<String, Value> =
        KvKind::ALL.iter().map(|k| (k.name().to_owned(), json!(cell_bytes(c, *k) * count(LayerKind::Qsa)))).collect();
    json!({
        "name": model.name(),
        "weight_bytes": by_type,
        "mtp_block": c.has_mtp || model.mtp.is_some(),
        "context": c.context,
        "vocabulary": c.vocab,
        "gdn_layers": count(LayerKind::Gdn),
        "attention_layers": count(LayerKind::Qsa),
        "kv_bytes_per_token": kv,
        "recurrent_state_bytes": gdn_state_bytes(c) * count(LayerKind::Gdn),
    })
}

/// Bytes of a cell of one attention layer: keys, values, and its share of its block's index key.
fn cell_bytes(c: &Config, kind: KvKind) -> usize {
    c.qsa.kv_heads * (kind.keys().row_bytes() + kind.values().row_bytes()) + c.qsa.index_dim * size_of::<f32>() / c.qsa.block
}

/// Bytes of the state of one gated DeltaNet layer: heads and convolution.
fn gdn_state_bytes(c: &Config) -> usize {
    let g = c.gdn;
    (g.value_heads * g.key_dim * g.value_dim + (c.conv_taps - 1) * g.conv_dim()) * size_of::<f32>()
}

fn as_text(r: &Value, plan: &[String]) -> String {
    let mut s = String::new();
    let mut line = |text: String| {
        // writing to a string cannot fail
        let _ = writeln!(s, "{text}");
    };
    let list = |v: &Value| v.as_array().map_or(String::new(), |a| a.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
    let size = |v: &Value| v.as_u64().map_or("unknown".to_owned(), output::bytes);
    let (cpu, memory, model) = (&r["cpu"], &r["memory"], &r["model"]);
    line(format!("strata {}", r["version"].as_str().unwrap_or_default()));
    line("\nmachine".into());
    line(format!("  cpu         {} ({})", cpu["model"].as_str().unwrap_or("unknown"), cpu["architecture"].as_str().unwrap_or_default()));
    line(format!("  features    {}", list(&cpu["features"])));
    line(format!("  levels      {} (in force: {})", list(&cpu["simd_available"]), cpu["simd"].as_str().unwrap_or_default()));
    line(format!("  threads     {} of {} logical cores", cpu["threads"], cpu["logical_cores"]));
    line(format!(
        "  subnormals  {}",
        if cpu["keeps_subnormals"] == true { "kept, as they must be" } else { "FLUSHED: the engine will not run" }
    ));
    line(format!("  memory      {} of {} available", size(&memory["available_bytes"]), size(&memory["total_bytes"])));
    line("\ngpu (the kernels are built and checked; answers come from the CPU engine)".into());
    for p in r["gpu"]["looked_for"].as_array().into_iter().flatten() {
        let text = |k: &str| p[k].as_str().unwrap_or_default();
        line(format!("  {:<12}{}{}", text("what"), if p["found"] == true { "" } else { "missing: " }, text("detail")));
    }
    for card in r["gpu"]["cards"].as_array().into_iter().flatten() {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        line(format!("  dispatch of {} ({}); no answer depends on it", text(&card["name"]), text(&card["arch"])));
        for v in card["dispatch"].as_array().into_iter().flatten() {
            line(format!("    {:<32} {:<24} {}", text(&v["switch"]), text(&v["value"]), text(&v["origin"])));
        }
        card["notes"].as_array().into_iter().flatten().for_each(|note| line(format!("    {}", text(note))));
    }
    line("\nops (all exact: the bits of the scalar definitions, see `strata parity`)".into());
    for op in r["ops"].as_array().into_iter().flatten() {
        let text = |k: &str| op[k].as_str().unwrap_or_default();
        line(format!("  {:<48} {:<10} parity {}", text("ops"), text("level"), text("parity")));
    }
    line(format!("\nmodel {}", model["name"].as_str().unwrap_or_default()));
    let pairs = |v: &Value| v.as_object().into_iter().flatten().map(|(k, v)| format!("{k} {}", size(v))).collect::<Vec<_>>().join(", ");
    line(format!("  weights     {}", pairs(&model["weight_bytes"])));
    line(format!(
        "  layers      {} gated DeltaNet, {} attention{}",
        model["gdn_layers"],
        model["attention_layers"],
        if model["mtp_block"] == true { ", MTP block" } else { "" }
    ));
    line(format!("  context     {} tokens, vocabulary {}", model["context"], model["vocabulary"]));
    line(format!("  KV a token  {}", pairs(&model["kv_bytes_per_token"])));
    line(format!("  states      {} a sequence", size(&model["recurrent_state_bytes"])));
    line(String::new());
    plan.iter().for_each(|l| line(l.clone()));
    line("\nswitches".into());
    line(format!("  {:<22} {:<18} {:<8} {:<12} {:<6} environment", "flag", "value", "origin", "default", "exact"));
    for x in r["settings"].as_array().into_iter().flatten() {
        let text = |k: &str| match &x[k] {
            Value::String(s) => s.clone(),
            Value::Null => "-".into(),
            Value::Bool(b) => if *b { "yes" } else { "no" }.into(),
            other => other.to_string(),
        };
        line(format!(
            "  {:<22} {:<18} {:<8} {:<12} {:<6} {}",
            text("flag"),
            text("value"),
            text("origin"),
            text("default"),
            text("exact"),
            text("env")
        ));
    }
    line("  exact: the value never changes a token".into());
    s
}
