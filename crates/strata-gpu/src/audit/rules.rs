//! What the tables below `kernels/resources` demand: instructions that must be there, and published figures as bars.

use std::path::Path;

use super::disassembly::Function;
use super::table::{Row, malformed, read};
use crate::error::Result;

/// Instructions that kernels of some architectures must hold.
pub struct Expected {
    archs: String,
    pub kernels: String,
    words: Vec<String>,
}

/// Reads `expected.txt`: architectures, kernels (`*` at the end: any that begin so), then words of which each must occur in
/// an instruction; `a|b` is either, for architectures too. Nothing is expected where there is no such file.
pub fn expected(dir: &Path) -> Result<Vec<Expected>> {
    let path = dir.join("expected.txt");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let parse = |line: &str| {
        let mut words = line.split_whitespace().map(String::from);
        let rule = Expected { archs: words.next()?, kernels: words.next()?, words: words.collect() };
        (!rule.words.is_empty()).then_some(rule)
    };
    let text = read(&path)?;
    let rules = lines(&text).map(parse).collect::<Option<_>>();
    rules.ok_or_else(|| malformed(&path, "expected architectures, a kernel and instructions on each line"))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|l| l.split('#').next().unwrap_or_default()).filter(|l| !l.trim().is_empty())
}

impl Expected {
    pub fn is_for(&self, arch: &str, kernel: &str) -> bool {
        let kernel = match self.kernels.strip_suffix('*') {
            Some(start) => kernel.starts_with(start),
            None => kernel == self.kernels,
        };
        kernel && self.archs.split('|').any(|a| arch.starts_with(a))
    }

    /// The words that do not occur.
    pub fn missing<'a>(&'a self, function: &Function) -> Vec<&'a str> {
        let occurs = |word: &str| word.split('|').any(|w| function.code.iter().any(|i| i.text.contains(w)));
        self.words.iter().map(String::as_str).filter(|w| !occurs(w)).collect()
    }
}

/// A published figure.
pub struct Bar {
    pub kernel: String,
    registers: Option<u64>,
    shared: Option<u64>,
    /// Why the kernel may be worse.
    reason: String,
}

/// Reads `published-<arch>.txt`: kernel, registers, shared memory (`-`: not published), then the reason why the kernel may be worse,
/// if there is one. No bars where there is no such file.
pub fn published(dir: &Path, arch: &str) -> Result<Vec<Bar>> {
    let path = dir.join(format!("published-{arch}.txt"));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let kernel = words.next()?.to_string();
        let mut figure = || words.next().and_then(|w| if w == "-" { Some(None) } else { w.parse().ok().map(Some) });
        let (registers, shared) = (figure()?, figure()?);
        Some(Bar { kernel, registers, shared, reason: words.collect::<Vec<_>>().join(" ") })
    };
    let text = read(&path)?;
    let bars = lines(&text).map(parse).collect::<Option<_>>();
    bars.ok_or_else(|| malformed(&path, "expected a kernel, registers and shared memory on each line"))
}

impl Bar {
    /// What is worse than published: whether that fails, and a text.
    pub fn compare(&self, row: &Row) -> Vec<(bool, String)> {
        let pairs = [("registers", row.resources.registers, self.registers), ("shared memory", row.resources.shared, self.shared)];
        let worse = pairs.into_iter().filter_map(|(what, found, bar)| Some((what, found, bar?))).filter(|(_, found, bar)| found > bar);
        let text = |(what, found, bar): (&str, u64, u64)| {
            let reason = if self.reason.is_empty() { "no reason is given" } else { &self.reason };
            (self.reason.is_empty(), format!("{what} {found}, published {bar}: {reason}"))
        };
        worse.map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::disassembly::Instruction;
    use super::super::resources::Resources;
    use super::*;

    #[test]
    fn instructions_are_expected() {
        let words = ["v_wmma_i32_16x16x16_iu8", "v_dot4_i32_iu8|row_xmask:8"].map(String::from).to_vec();
        let rule = Expected { archs: "gfx11|gfx12".into(), kernels: "attn_*".into(), words };
        assert!(rule.is_for("gfx1201", "attn_chunk") && rule.is_for("gfx11-generic", "attn_"));
        assert!(!rule.is_for("gfx1030", "attn_chunk") && !rule.is_for("gfx1201", "merge"));
        let code = |text: &str| vec![Instruction { text: text.into(), target: None }];
        let function = |text| Function { name: "attn_chunk".into(), code: code(text) };
        assert_eq!(rule.missing(&function("v_mov_b32_dpp v1, v2 row_xmask:8")), ["v_wmma_i32_16x16x16_iu8"]);
        assert_eq!(rule.missing(&function("s_endpgm")).len(), 2);
    }

    #[test]
    fn worse_than_published_fails_without_a_reason() {
        let resources = Resources { registers: 30, shared: 64, ..Resources::default() };
        let row = Row { kernel: "k".into(), resources, inner_loop: None, occupancy: None };
        let bar = |registers, shared, reason: &str| Bar { kernel: "k".into(), registers, shared, reason: reason.into() };
        assert!(bar(Some(30), None, "").compare(&row).is_empty());
        assert!(matches!(&bar(Some(29), Some(64), "").compare(&row)[..], [(true, _)]));
        assert!(matches!(&bar(Some(29), Some(63), "more digits").compare(&row)[..], [(false, a), (false, _)] if a.contains("more digits")));
    }
}
