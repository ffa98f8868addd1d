//! Single ops of the CPU beside what this machine reads, multiplies and looks up at most, measured in the same run.

use super::stats::Stats;
use super::{BenchArgs, print};
use crate::error::CliError;
use crate::output;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use strata_cpu::backend::Cpu;
use strata_cpu::bench::{Memory, Product, Timing, look_ups, mat_vec};
use strata_cpu::peak::multiply_adds;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_ops::backend::{Backend, GdnRows, GdnShape, QsaGeometry, SequenceRows};
use strata_ops::qsa::kv::KvKind;
use strata_ops::rope::{RopeScaling, RopeTable};
use strata_quant::DType;
use strata_quant::testing::SplitMix64;

/// An op that can be measured.
pub struct Op {
    pub name: &'static str,
    pub about: &'static str,
    run: fn(&Setting) -> Result<Vec<Case>, CliError>,
}

pub const OPS: [Op; 5] = [
    Op { name: "limits", about: "reading memory, multiply-adds on registers, table look-ups", run: limits },
    Op { name: "mat-vec", about: "one row of activations times ten experts, rows of 2,560 and 640 weights", run: mat_vecs },
    Op { name: "matmul", about: "prompts: 512 rows times one matrix, and 32 rows times each of two experts", run: matmuls },
    Op { name: "gdn", about: "gated DeltaNet, 48 heads, one token and 64", run: gdn },
    Op { name: "qsa", about: "sparse attention at 8,192 cells, 24 heads, one token and 32, every KV format", run: qsa },
];

/// True if `name` begins the name of an op.
pub fn is_one(name: &str) -> bool {
    OPS.iter().any(|o| o.name.starts_with(name))
}

/// How ops are measured.
struct Setting {
    threads: usize,
    simd: Simd,
    rounds: usize,
    types: Vec<DType>,
    limits: Limits,
}

/// What this machine does at most, with these threads and instructions.
#[derive(Clone, Copy)]
struct Limits {
    /// Bytes a second.
    read: f64,
    /// Multiply-adds a second of f32 and of 8-bit integers.
    floats: f64,
    integers: f64,
    /// Look-ups a second of 4 and of 8 codes, where this CPU has a kernel to measure.
    look_ups: [Option<f64>; 2],
}

/// A measurement: seconds of a call, the bytes it must read and the multiply-adds it must do.
struct Case {
    name: String,
    seconds: Stats,
    bytes: f64,
    macs: f64,
    /// The limit of its multiply-adds.
    peak: Option<f64>,
    /// Shares of limits that were measured beside each of its rounds: of reading, and of its table look-ups.
    read: Option<f64>,
    look_ups: Option<f64>,
}

/// Measures the chosen ops.
///
/// # Errors
/// An unknown op or type, or memory that cannot be had.
pub fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let unknown = |what: &str, known: Vec<&str>, found: &str| {
        CliError::Usage(format!("bench: --{what}: expected one of {}, found {found}", known.join(", ")))
    };
    if let Some(bad) = args.ops.iter().find(|n| !is_one(n)) {
        return Err(unknown("op", OPS.iter().map(|o| o.name).collect(), bad));
    }
    let named = |n: &String| DType::from_name(n).ok_or_else(|| unknown("types", DType::all().map(DType::name).collect(), n));
    let types: Vec<DType> = args.types.iter().map(named).collect::<Result<_, _>>()?;
    let types = if types.is_empty() { DType::all().filter(|d| !d.is_float()).collect() } else { types };
    let chosen = OPS.iter().filter(|o| args.ops.iter().any(|n| o.name.starts_with(n.as_str())));
    let chosen: Vec<&Op> = chosen.collect();
    if let Some(bad) = args.levels().into_iter().find(|l| !Simd::available().contains(l)) {
        let available = Simd::available();
        return Err(unknown("simd", available.iter().map(|s| s.name()).collect(), bad.name()));
    }
    let mut rows = Vec::new();
    for simd in args.levels() {
        for threads in args.threads() {
            let s = Setting {
                threads,
                simd,
                rounds: args.repetitions,
                types: types.clone(),
                limits: Limits::measure(threads, simd, args.repetitions)?,
            };
            for op in &chosen {
                output::note_if_terminal(op.name);
                rows.extend((op.run)(&s)?.iter().map(|c| c.row(op.name, &s)));
            }
            // the limits every share is of are part of every report
            if !chosen.iter().any(|o| o.name == "limits") {
                rows.extend(limits(&s)?.iter().map(|c| c.row("limits", &s)));
            }
        }
    }
    print(args, "ops", &rows, &columns)?;
    Ok(ExitCode::SUCCESS)
}

impl Limits {
    fn measure(threads: usize, simd: Simd, rounds: usize) -> Result<Limits, CliError> {
        let pool = Pool::pinned(threads)?;
        let [floats, integers] = multiply_adds(&pool, simd, rounds);
        let look_ups = [false, true].map(|wide| look_ups(&pool, simd, wide, rounds).map(|t| t.rate()));
        Ok(Limits { read: Memory::new().read(&pool, rounds).bandwidth(), floats, integers, look_ups })
    }
}

impl Case {
    fn of(name: String, t: &Timing) -> Case {
        let seconds = Stats::of(&[t.fastest, t.seconds, t.slowest]);
        Case { name, seconds, bytes: t.bytes, macs: t.operations, peak: None, read: None, look_ups: None }
    }

    fn row(&self, op: &str, s: &Setting) -> Value {
        let per = |x: f64| (x > 0.0).then(|| x / self.seconds.median);
        let share = |x: Option<f64>, of: f64| x.map(|x| x / of);
        // a limit is a rate, not a call
        let us = |x: f64| (op != "limits").then_some(x * 1e6);
        json!({
            "op": op,
            "case": self.name,
            "simd": s.simd.name(),
            "threads": s.threads,
            "us_median": us(self.seconds.median),
            "us_min": us(self.seconds.min),
            "us_max": us(self.seconds.max),
            "gb_s": per(self.bytes).map(|x| x / 1e9),
            "gmac_s": per(self.macs).map(|x| x / 1e9),
            "gflop_s": per(self.macs).map(|x| 2.0 * x / 1e9),
            "of_read": self.read.or_else(|| share(per(self.bytes), s.limits.read)),
            "of_peak": self.peak.and_then(|p| share(per(self.macs), p)),
            "of_look_ups": self.look_ups,
        })
    }
}

fn columns(r: &Value) -> Vec<(&'static str, String)> {
    let text = |k: &str| r[k].as_str().map_or_else(|| r[k].to_string(), str::to_owned);
    let number = |k: &str, digits: usize| r[k].as_f64().map_or(String::new(), |x| format!("{x:.digits$}"));
    let share = |k: &str| r[k].as_f64().map_or(String::new(), |x| format!("{:.0} %", 100.0 * x));
    vec![
        ("op", text("op")),
        ("case", text("case")),
        ("simd", text("simd")),
        ("threads", text("threads")),
        ("us, median", number("us_median", 1)),
        ("min to max", [number("us_min", 1), number("us_max", 1)].join(if r["us_min"].is_null() { "" } else { " to " })),
        ("GB/s", number("gb_s", 1)),
        ("GMAC/s", number("gmac_s", 1)),
        ("of read", share("of_read")),
        ("of peak", share("of_peak")),
        ("of look-ups", share("of_look_ups")),
    ]
}

/// The limits themselves, as cases of one second.
fn limits(s: &Setting) -> Result<Vec<Case>, CliError> {
    let one = Stats { median: 1.0, min: 1.0, max: 1.0, mad: 0.0 };
    let case =
        |name: &str, bytes: f64, macs: f64| Case { name: name.into(), seconds: one, bytes, macs, peak: None, read: None, look_ups: None };
    let l = &s.limits;
    Ok(vec![
        case("read memory", l.read, 0.0),
        case("f32 multiply-adds", 0.0, l.floats),
        case("int8 multiply-adds", 0.0, l.integers),
        case("look-ups of 4 codes, codes", 0.0, 4.0 * l.look_ups[0].unwrap_or(0.0)),
        case("look-ups of 8 codes, codes", 0.0, 8.0 * l.look_ups[1].unwrap_or(0.0)),
    ])
}

/// Codes that one table look-up gives, for formats with a codebook.
fn codes(dtype: DType) -> Option<usize> {
    match dtype.name() {
        "IQ3_S" | "IQ3_XXS" => Some(4),
        "IQ2_S" | "IQ2_XS" | "IQ2_XXS" | "IQ1_S" | "IQ1_M" => Some(8),
        _ => None,
    }
}

fn products(s: &Setting, shapes: &[(usize, usize)], experts: usize, columns: usize) -> Result<Vec<Case>, CliError> {
    let pool = Pool::pinned(s.threads)?;
    let memory = Memory::new();
    let all = s.types.iter().flat_map(|t| shapes.iter().map(move |shape| (*t, *shape)));
    let one = |(dtype, (rows, cols)): (DType, (usize, usize))| {
        let p = Product { dtype, rows, cols, experts, columns, simd: s.simd };
        output::note_if_terminal(&format!("{dtype} {rows} x {cols}"));
        let codes = codes(dtype).filter(|n| columns == 1 && s.limits.look_ups[usize::from(*n == 8)].is_some());
        let read = || memory.read(&pool, 1).bandwidth();
        let look = || look_ups(&pool, s.simd, codes == Some(8), 1).map_or(f64::NAN, |t| t.rate());
        let limits: [&dyn Fn() -> f64; 2] = [&read, &look];
        let (t, could) = mat_vec(&pool, p, s.rounds, &limits[..1 + usize::from(codes.is_some())]);
        let peak = if dtype.is_float() { s.limits.floats } else { s.limits.integers };
        let name = format!("{dtype} {experts} x {rows} x {cols}, {columns} row{}", if columns == 1 { "" } else { "s" });
        let look_ups = codes.map(|n| t.operations / n as f64 / could[1]);
        Case { peak: Some(peak), read: Some(t.bytes / could[0]), look_ups, ..Case::of(name, &t) }
    };
    Ok(all.filter(|(dtype, (_, cols))| dtype.row_bytes(*cols).is_some()).map(one).collect())
}

fn mat_vecs(s: &Setting) -> Result<Vec<Case>, CliError> {
    products(s, &[(640, 2560), (2560, 640)], 10, 1)
}

fn matmuls(s: &Setting) -> Result<Vec<Case>, CliError> {
    let mut all = products(s, &[(2560, 2560)], 1, 512)?;
    all.extend(products(s, &[(640, 2560), (2560, 640)], 2, 32)?);
    Ok(all)
}

/// Calls `f(i)` for each i in turn, round by round.
fn time(rounds: usize, calls: usize, mut f: impl FnMut(usize)) -> Stats {
    let mut round = || {
        let start = Instant::now();
        (0..calls).for_each(&mut f);
        start.elapsed().as_secs_f64() / calls as f64
    };
    round();
    Stats::of(&(0..rounds).map(|_| round()).collect::<Vec<_>>())
}

fn random(cpu: &Cpu, rng: &mut SplitMix64, len: usize, scale: f32) -> Result<Vec<f32>, CliError> {
    let mut buf = cpu.buf(len, "a benchmark's input")?;
    buf.iter_mut().for_each(|x| *x = scale * rng.next_f32());
    Ok(buf)
}

fn gdn(s: &Setting) -> Result<Vec<Case>, CliError> {
    let cpu = Cpu::new(Arc::new(Pool::pinned(s.threads)?), s.simd)?;
    let shape = GdnShape { key_heads: 16, value_heads: 48, key_dim: 128, value_dim: 128 };
    let rng = &mut SplitMix64::new(1);
    let mut cases = Vec::new();
    // as many states as a model has layers, more than caches hold
    let mut states = (0..36).map(|_| random(&cpu, rng, shape.state_len(), 0.1)).collect::<Result<Vec<_>, _>>()?;
    for n in [1, 64] {
        let qkv = random(&cpu, rng, n * shape.conv_dim(), 0.1)?;
        let (decay, beta) = (vec![0.95; n * shape.value_heads], vec![0.5; n * shape.value_heads]);
        let mut out = cpu.buf(n * shape.inner(), "a benchmark's output")?;
        let calls = if n == 1 { states.len() } else { 2 };
        let seconds = time(s.rounds, calls, |i| {
            let seq = SequenceRows { rows: 0..n, first: 0, commit: true, state: &mut states[i] };
            cpu.gdn(GdnRows { qkv: &qkv, decay: &decay, beta: &beta, shape }, std::iter::once(seq), &mut out);
        });
        let state = shape.state_len() as f64;
        // a state is read and written once a call; each token takes two dots and an update of it
        cases.push(Case {
            name: format!("{n} token{}", if n == 1 { "" } else { "s" }),
            seconds,
            bytes: 8.0 * state,
            macs: 3.0 * state * n as f64,
            peak: Some(s.limits.floats),
            read: None,
            look_ups: None,
        });
    }
    Ok(cases)
}

fn qsa(s: &Setting) -> Result<Vec<Case>, CliError> {
    const CELLS: usize = 8192;
    let cpu = Cpu::new(Arc::new(Pool::pinned(s.threads)?), s.simd)?;
    let g = QsaGeometry {
        heads: 24,
        kv_heads: 2,
        head_dim: 256,
        index_heads: 4,
        index_dim: 128,
        block: 4,
        budget_blocks: 512,
        eps: 1e-6,
        dense: false,
    };
    let rope = RopeTable::new(CELLS, 64, 1e7, RopeScaling::None);
    let rng = &mut SplitMix64::new(2);
    let gain = vec![1.0; g.index_dim];
    let mut cases = Vec::new();
    for kind in KvKind::ALL.into_iter().filter(|k| *k != KvKind::F32) {
        // as many caches as a model has such layers
        let mut caches = (0..12).map(|_| cpu.kv_cache(g, kind, CELLS)).collect::<Result<Vec<_>, _>>()?;
        const PART: usize = 512;
        for cache in &mut caches {
            for _ in 0..CELLS / PART {
                let (k, v) = (random(&cpu, rng, PART * 512, 2.0)?, random(&cpu, rng, PART * 512, 2.0)?);
                let index = random(&cpu, rng, PART * g.index_dim, 2.0)?;
                cpu.kv_append(cache, &k, &v, &index, 0..PART, &gain, g.eps, &rope);
            }
        }
        for n in [1, 32] {
            let (q, iq) = (random(&cpu, rng, n * g.heads * g.head_dim, 2.0)?, random(&cpu, rng, n * g.index_heads * g.index_dim, 2.0)?);
            let mut scratch = cpu.attn_scratch(g, n, CELLS)?;
            let mut out = cpu.buf(n * g.heads * g.head_dim, "a benchmark's output")?;
            let calls = if n == 1 { caches.len() } else { 2 };
            let seconds = time(s.rounds, calls, |i| {
                let seq = SequenceRows { rows: 0..n, first: CELLS - n, commit: true, state: &mut caches[i] };
                cpu.attend(g, &q, &iq, std::iter::once(seq), &mut scratch, &mut out);
            });
            let (blocks, selected) = ((CELLS / g.block) as f64, (g.budget_blocks * g.block) as f64);
            let cell = (g.kv_heads * (kind.keys().row_bytes() + kind.values().row_bytes())) as f64;
            // index keys of every block, and the rows of the selected cells
            let (index, rows) = (blocks * 4.0 * g.index_dim as f64, selected * cell);
            let macs = blocks * (g.index_heads * g.index_dim) as f64 + selected * (2 * g.heads * g.head_dim) as f64;
            cases.push(Case {
                name: format!("{} {n} token{}", kind.name(), if n == 1 { "" } else { "s" }),
                seconds,
                bytes: if n == 1 { index + rows } else { 0.0 },
                macs: macs * n as f64,
                peak: Some(s.limits.floats),
                read: None,
                look_ups: None,
            });
        }
    }
    Ok(cases)
}
