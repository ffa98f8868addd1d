//! Checks of compiled kernels that need no GPU: registers, spills, memory, the EXEC rule, expected instructions, against the
//! committed tables. Nothing but the compilers and their disassemblers is run; resources are read from the images.

mod disassembly;
mod elf;
mod exec;
mod msgpack;
mod occupancy;
mod resources;
mod rules;
mod table;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::compile::{self, COMMON, Vendor};
use crate::error::{GpuError, Result};
use crate::registry;
use disassembly::Function;
use table::{Row, Table};

pub use resources::Resources;

/// Something to tell of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kernel: String,
    /// Whether the audit fails by it.
    pub fails: bool,
    pub text: String,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The directory of the committed tables, `kernels/resources` of a checkout.
    pub tables: &'a Path,
    /// Write the tables instead of comparing with them.
    pub update: bool,
    /// One JSON object an architecture instead of text.
    pub json: bool,
}

/// Audits the architectures of a comma list (`all`: the common ones) and prints what it finds, piece by piece. True if nothing fails.
///
/// # Errors
/// A compiler or disassembler that is not here, a kernel that does not compile, a table that cannot be read or written.
pub fn run(archs: &str, options: Options, print: &mut dyn FnMut(&str)) -> Result<bool> {
    let all = COMMON.join(",");
    let mut passed = true;
    // An empty name is no architecture, hence an error: nothing audited must not pass.
    for arch in if archs == "all" { &all } else { archs }.split(',').map(str::trim) {
        if !options.json && Vendor::of(arch).is_some() {
            // before the minutes of compiling: what stops in them has said where
            print(&format!("{arch}\n"));
        }
        let (table, findings) = audit(arch, options.tables, !options.update)?;
        if options.update {
            table.write(options.tables, arch)?;
        }
        print(&if options.json { json(arch, &table, &findings) } else { text(arch, &table, &findings) });
        passed &= !findings.iter().any(|f| f.fails);
    }
    Ok(passed)
}

/// The findings for an architecture.
///
/// # Errors
/// As [`run`].
pub fn check(arch: &str, tables: &Path) -> Result<Vec<Finding>> {
    audit(arch, tables, true).map(|(_, findings)| findings)
}

/// What one file's image holds.
struct Compiled {
    resources: Vec<(String, Resources)>,
    /// `None` where NVIDIA's disassembler is not here: it does not come with the compiler.
    functions: Option<Vec<Function>>,
}

fn compile_file(file: &str, arch: &str) -> Result<Compiled> {
    let image = compile::image(file, arch, &[])?;
    let unreadable = || GpuError::Kernel { kernel: format!("(all of {file})"), reason: format!("the image for {arch} cannot be read") };
    let resources = resources::read(&image).ok_or_else(unreadable)?;
    let functions = match disassembly::disassemble(&image) {
        Err(GpuError::Missing { what: "nvdisasm", .. }) => None,
        other => Some(other?),
    };
    Ok(Compiled { resources, functions })
}

/// Every file, on all cores, in the registry's order.
fn compile_all(arch: &str) -> Result<Vec<Compiled>> {
    let files = registry::files();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(at) else { break };
                    let result = compile_file(file, arch);
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn audit(arch: &str, tables: &Path, compare: bool) -> Result<(Table, Vec<Finding>)> {
    let compiled = compile_all(arch)?;
    let expected = rules::expected(tables)?;
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for kernel in registry::all().filter(|k| k.runs_on(arch)) {
        let mut find = |fails, text: String| findings.push(Finding { kernel: kernel.name.into(), fails, text });
        let held = compiled.iter().find_map(|c| Some((c, &c.resources.iter().find(|(name, _)| name == kernel.name)?.1)));
        let Some((file, resources)) = held else {
            find(true, format!("is not in the image of {}", kernel.file));
            continue;
        };
        let function = file.functions.iter().flatten().find(|f| f.name == kernel.name);
        let row = Row {
            kernel: kernel.name.into(),
            resources: resources.clone(),
            inner_loop: function.and_then(Function::longest_innermost_loop),
            occupancy: occupancy::percent(arch, resources, kernel.threads),
        };
        spills(&row.resources, &mut find);
        if let Some(function) = function {
            code(arch, function, &expected, &mut find);
        } else if file.functions.is_some() {
            find(true, "is not in the disassembly".into());
        }
        rows.push(row);
    }
    let unlisted = compiled.iter().flat_map(|c| &c.resources).filter(|(name, _)| registry::find(name).is_none());
    findings.extend(unlisted.map(|(name, _)| Finding { kernel: name.clone(), fails: true, text: "is not in the registry".into() }));
    if compiled.iter().any(|c| c.functions.is_none()) {
        findings.push(Finding { kernel: "(all)".into(), fails: false, text: "not disassembled: nvdisasm was not found".into() });
    }
    rows.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    let table = Table { compiler: compile::compiler(arch)?, rows };
    bars(&table, &rules::published(tables, arch)?, &mut findings);
    if compare {
        differences(&table, Table::read(tables, arch)?.as_ref(), &mut findings);
    }
    Ok((table, findings))
}

fn spills(r: &Resources, find: &mut dyn FnMut(bool, String)) {
    if r.spills > 0 {
        find(true, format!("spills vector registers: {}", r.spills));
    }
    if r.scratch > 0 {
        find(true, format!("uses local memory: {} bytes a lane", r.scratch));
    }
    if r.scalar_spills > 0 {
        find(false, format!("keeps {} scalar registers in vector registers", r.scalar_spills));
    }
}

/// The EXEC rule and the expected instructions.
fn code(arch: &str, function: &Function, expected: &[rules::Expected], find: &mut dyn FnMut(bool, String)) {
    if arch.starts_with("gfx") {
        let violations = exec::check(function);
        if let Some(first) = violations.first() {
            let what = if first.unreached { "may run" } else { "runs" };
            let text = format!("{what} with lanes off: instruction {}: {}", first.at, first.text);
            find(true, format!("EXEC rule, {} instructions; the first {text}", violations.len()));
        }
    }
    for rule in expected.iter().filter(|r| r.is_for(arch, &function.name)) {
        for word in rule.missing(function) {
            find(true, format!("expected instruction {word} is not there"));
        }
    }
}

fn bars(table: &Table, bars: &[rules::Bar], findings: &mut Vec<Finding>) {
    for bar in bars {
        let found = match table.row(&bar.kernel) {
            Some(row) => bar.compare(row),
            None => vec![(true, "has a published figure, but is not in the registry".to_string())],
        };
        findings.extend(found.into_iter().map(|(fails, text)| Finding { kernel: bar.kernel.clone(), fails, text }));
    }
}

/// By how much a figure may differ from the committed one under the same compiler. clang repeats itself. NVRTC does not, not even
/// in one thread: over five audits each of sm_80 and sm_90a with release 13.5, the same sources gave four of some 170 kernels
/// a register, an instruction of a loop or 128 bytes of code more or less. Twice that is allowed; memory and spills did not move.
fn slack(compiler: &str, figure: &str) -> u64 {
    match figure {
        _ if !compiler.starts_with("NVRTC") => 0,
        "registers" | "loop" => 2,
        "code" => 256,
        // Follows from the registers, in steps.
        "waves%" => 100,
        _ => 0,
    }
}

fn within(old: &str, new: &str, slack: u64) -> bool {
    old.parse::<u64>().ok().zip(new.parse::<u64>().ok()).is_some_and(|(old, new)| old.abs_diff(new) <= slack)
}

/// Figures of one compiler are compared, up to [`slack`]; another one's differ, which is only said.
fn differences(table: &Table, committed: Option<&Table>, findings: &mut Vec<Finding>) {
    let mut find = |kernel: &str, fails, text: String| findings.push(Finding { kernel: kernel.to_string(), fails, text });
    let Some(committed) = committed else {
        return find("(all)", true, "there is no committed table; --update writes it".into());
    };
    if committed.compiler != table.compiler {
        let text = format!("not compared: the table is of {}, this is {}", committed.compiler, table.compiler);
        return find("(all)", false, text);
    }
    for row in &table.rows {
        let Some(old) = committed.row(&row.kernel) else {
            find(&row.kernel, true, "is not in the committed table".into());
            continue;
        };
        // A figure that one side lacks was not measured there (no disassembler).
        let pairs = old.figures().zip(row.figures()).filter(|((_, old), (_, new))| old != "-" && new != "-");
        for ((name, old), (_, new)) in pairs.filter(|((name, old), (_, new))| !within(old, new, slack(&table.compiler, name))) {
            find(&row.kernel, true, format!("{name} {new}, committed {old}"));
        }
    }
    for row in committed.rows.iter().filter(|r| table.row(&r.kernel).is_none()) {
        find(&row.kernel, true, "is in the committed table only".into());
    }
}

fn text(arch: &str, table: &Table, findings: &[Finding]) -> String {
    let mut text = table.text();
    for f in findings {
        text += &format!("{} {}: {}\n", if f.fails { "FAIL" } else { "note" }, f.kernel, f.text);
    }
    let failed = findings.iter().filter(|f| f.fails).count();
    text + &format!("{arch}: {} kernels, {failed} failures, {} notes\n", table.rows.len(), findings.len() - failed)
}

fn json(arch: &str, table: &Table, findings: &[Finding]) -> String {
    let quote = |s: &str| {
        let escape = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c < ' ' => format!("\\u{:04x}", c as u32),
            c => c.to_string(),
        };
        format!("\"{}\"", s.chars().map(escape).collect::<String>())
    };
    let figure = |(name, value): (&str, String)| format!("{}:{}", quote(name), if value == "-" { "null" } else { &value });
    let row = |r: &Row| format!("{{\"kernel\":{},{}}}", quote(&r.kernel), r.figures().map(figure).collect::<Vec<_>>().join(","));
    let finding = |f: &Finding| format!("{{\"kernel\":{},\"fails\":{},\"text\":{}}}", quote(&f.kernel), f.fails, quote(&f.text));
    let rows = table.rows.iter().map(row).collect::<Vec<_>>().join(",");
    let findings = findings.iter().map(finding).collect::<Vec<_>>().join(",");
    let (arch, compiler) = (quote(arch), quote(&table.compiler));
    format!("{{\"arch\":{arch},\"compiler\":{compiler},\"kernels\":[{rows}],\"findings\":[{findings}]}}\n")
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
