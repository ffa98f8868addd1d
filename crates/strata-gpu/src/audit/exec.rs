//! The EXEC rule: AMD's lane exchanges and matrix instructions must run with every lane on.
//!
//! A wave runs both sides of a divergent branch one after the other, with EXEC holding the lanes that take part. A lane exchange
//! that reads a lane which is off gets garbage, so no such instruction may stand where EXEC can be less than at entry. Compilers
//! have moved them there (`AMD_PIN` in `side/hip.cuh` says more), so every code object is checked.
//!
//! Deciding this from the text alone needs the values of masks: compilers save EXEC, narrow it, flip it for `else`, gather the
//! lanes that left a loop and restore the union, through scalar registers and sometimes lanes of vector registers. So the checker
//! runs the code with concrete masks of 32 lanes: mask arithmetic is computed, comparisons of vector registers give random bits of
//! active lanes, branches on EXEC and VCC follow the masks, and branches on unknown scalar conditions lead to the instruction that
//! the run is meant to reach, always or mostly. All lanes are on at entry: workgroups are whole waves.
//!
//! A branch that is uniform in truth but not to the compiler (the wave's number without `readfirstlane`) masks EXEC too and is
//! reported: the next compiler may make a real one of it. What is random can miss an error, never invent one: masks that no
//! run could have come only from comparisons that exclude each other, which restores of EXEC do not depend on.

use super::disassembly::Function;

/// An instruction that broke the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its index.
    pub at: usize,
    pub text: String,
    /// Whether no run reached it, so that nothing is known.
    pub unreached: bool,
}

const FULL: u32 = u32::MAX;
/// Scalar registers as operands number them; VCC is a pair above the general ones.
const VCC: usize = 106;
const REGISTERS: usize = 128;
/// Runs for each instruction in question, and at most while none has reached it.
const RUNS: usize = 8;
const MOST_RUNS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    /// First scalar register and how many.
    Scalar(usize, usize),
    Exec,
    Literal(u32),
    Vector(u32),
    Other,
}

fn operand(text: &str) -> Operand {
    let text = text.split_whitespace().next().unwrap_or_default();
    let number = |s: &str| s.parse::<usize>().ok();
    match text {
        "exec_lo" | "exec" => return Operand::Exec,
        "vcc_lo" => return Operand::Scalar(VCC, 1),
        "vcc_hi" => return Operand::Scalar(VCC + 1, 1),
        "vcc" => return Operand::Scalar(VCC, 2),
        _ => {}
    }
    if let Some(range) = text.strip_prefix("s[").and_then(|r| r.strip_suffix(']')) {
        let (first, last) = range.split_once(':').unwrap_or((range, range));
        return match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last && last < VCC => Operand::Scalar(first, last - first + 1),
            _ => Operand::Other,
        };
    }
    if let Some(n) = text.strip_prefix('s').and_then(number).filter(|n| *n < VCC) {
        return Operand::Scalar(n, 1);
    }
    if let Some(n) = text.strip_prefix('v').and_then(|n| n.parse().ok()) {
        return Operand::Vector(n);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u32::from_str_radix(hex, 16).map_or(Operand::Other, Operand::Literal);
    }
    text.parse::<i64>().map_or(Operand::Other, |n| Operand::Literal(n as u32))
}

/// An instruction, read once.
struct Step<'a> {
    mnemonic: &'a str,
    operands: Vec<Operand>,
    target: Option<usize>,
    collective: bool,
}

/// Lane exchanges and matrix instructions.
fn is_collective(mnemonic: &str) -> bool {
    let starts = ["v_permlane", "v_wmma", "v_swmmac", "ds_bpermute", "ds_permute", "ds_swizzle"];
    starts.iter().any(|s| mnemonic.starts_with(s)) || mnemonic.contains("_dpp")
}

/// Repeatable random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    /// A mask of the kinds that conditions have: none, all, one lane, all but one, any.
    fn mask(&mut self) -> u32 {
        let lane = 1 << (self.next() & 31);
        match self.next() & 7 {
            0 => 0,
            1 => FULL,
            2 => lane,
            3 => !lane,
            _ => self.next(),
        }
    }
}

/// One wave's scalar state; `None` is a value that is no mask.
struct Wave {
    exec: u32,
    scalar: [Option<u32>; REGISTERS],
    scc: Option<bool>,
    /// Scalars kept in lanes of vector registers: (register, lane, value).
    kept: Vec<(u32, u32, Option<u32>)>,
}

impl Wave {
    fn new() -> Wave {
        Wave { exec: FULL, scalar: [None; REGISTERS], scc: None, kept: Vec::new() }
    }

    fn get(&self, operand: Operand) -> Option<u32> {
        match operand {
            Operand::Exec => Some(self.exec),
            Operand::Scalar(n, _) => self.scalar[n],
            Operand::Literal(v) => Some(v),
            _ => None,
        }
    }

    fn set(&mut self, operand: Operand, value: Option<u32>, random: &mut Random) {
        match operand {
            Operand::Exec => self.exec = value.unwrap_or_else(|| random.mask()),
            Operand::Scalar(n, count) => {
                self.scalar[n..n + count].fill(None);
                self.scalar[n] = value;
            }
            _ => {}
        }
    }

    /// A mask operand; an unknown one becomes a random mask, and stays that.
    fn mask(&mut self, operand: Operand, random: &mut Random) -> u32 {
        let value = self.get(operand).unwrap_or_else(|| random.mask());
        if let Operand::Scalar(n, _) = operand {
            self.scalar[n] = Some(value);
        }
        value
    }
}

/// The function of two masks that a mnemonic names, without `s_`, `_saveexec` and the width.
fn logic(name: &str) -> Option<fn(u32, u32) -> u32> {
    Some(match name {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        "and_not1" | "andn2" => |a, b| a & !b,
        "or_not1" | "orn2" => |a, b| a | !b,
        "and_not0" | "andn1" => |a, b| !a & b,
        "or_not0" | "orn1" => |a, b| !a | b,
        "nand" => |a, b| !(a & b),
        "nor" => |a, b| !(a | b),
        "xnor" => |a, b| !(a ^ b),
        _ => return None,
    })
}

/// The violations of a function.
pub fn check(function: &Function) -> Vec<Violation> {
    let steps: Vec<Step> = function.code.iter().map(|i| step(&i.text, i.target)).collect();
    let mut checker = Checker {
        steps: &steps,
        random: Random(0x9e37_79b9_7f4a_7c15),
        reached: vec![false; steps.len()],
        broken: vec![false; steps.len()],
    };
    let first = first_of_blocks(&steps);
    for goal in (0..steps.len()).filter(|i| steps[*i].collective) {
        // Those of one block are reached together.
        if !first[goal] && checker.reached[goal] {
            continue;
        }
        let far = distances(&steps, goal);
        for run in 0..MOST_RUNS {
            if run >= RUNS && checker.reached[goal] {
                break;
            }
            checker.run(&far, run % 2 == 1);
        }
    }
    let (reached, broken) = (checker.reached, checker.broken);
    let wrong = |at: &usize| steps[*at].collective && (broken[*at] || !reached[*at]);
    let violation = |at: usize| Violation { at, text: function.code[at].text.clone(), unreached: !reached[at] };
    (0..steps.len()).filter(wrong).map(violation).collect()
}

/// How many instructions it takes from each to the goal; `None` where no way leads there.
fn distances(steps: &[Step], goal: usize) -> Vec<Option<u32>> {
    let mut sources = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        let ends = step.mnemonic.starts_with("s_endpgm") || step.mnemonic == "s_branch";
        let next = Some(at + 1).filter(|n| !ends && *n < steps.len());
        next.into_iter().chain(step.target).for_each(|to| sources[to].push(at));
    }
    let mut far = vec![None; steps.len()];
    far[goal] = Some(0);
    let mut queue = std::collections::VecDeque::from([(goal, 0)]);
    while let Some((at, d)) = queue.pop_front() {
        for from in &sources[at] {
            if far[*from].is_none() {
                far[*from] = Some(d + 1);
                queue.push_back((*from, d + 1));
            }
        }
    }
    far
}

/// Which instructions in question no other one leads to by straight code with EXEC left alone.
fn first_of_blocks(steps: &[Step]) -> Vec<bool> {
    let mut entered = vec![false; steps.len()];
    steps.iter().filter_map(|s| s.target).for_each(|to| entered[to] = true);
    let mut followed = false;
    let mut first = vec![false; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        followed &= !entered[at];
        first[at] = step.collective && !followed;
        followed |= step.collective;
        let writes_exec =
            step.mnemonic.starts_with("v_cmpx") || step.mnemonic.contains("exec") || step.operands.first() == Some(&Operand::Exec);
        followed &= step.target.is_none() && !writes_exec;
    }
    first
}

fn step(text: &str, target: Option<usize>) -> Step<'_> {
    // Of two instructions in one, the second writes no mask.
    let text = text.split(" :: ").next().unwrap_or_default();
    let (mnemonic, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let operands = rest.split(',').map(str::trim).filter(|o| !o.is_empty()).map(operand).collect();
    Step { mnemonic, operands, target, collective: is_collective(mnemonic) }
}

struct Checker<'a> {
    steps: &'a [Step<'a>],
    random: Random,
    reached: Vec<bool>,
    broken: Vec<bool>,
}

impl Checker<'_> {
    /// One way through the code; where a condition is unknown, towards the goal of these distances, `mostly` or always.
    fn run(&mut self, far: &[Option<u32>], mostly: bool) {
        let mut wave = Wave::new();
        let mut at = 0;
        for _ in 0..self.steps.len() * 20 + 1000 {
            let Some(step) = self.steps.get(at) else { return };
            self.reached[at] = true;
            self.broken[at] |= step.collective && wave.exec != FULL;
            if step.mnemonic.starts_with("s_endpgm") {
                return;
            }
            let jump = step.mnemonic == "s_branch" || step.mnemonic.starts_with("s_cbranch") && self.branches(at, &mut wave, far, mostly);
            at = match step.target {
                Some(target) if jump => target,
                _ => at + 1,
            };
            if !jump {
                self.execute(step, &mut wave);
            }
        }
    }

    fn branches(&mut self, at: usize, wave: &mut Wave, far: &[Option<u32>], mostly: bool) -> bool {
        let vcc = wave.scalar[VCC];
        let known = match self.steps[at].mnemonic {
            "s_cbranch_execz" => Some(wave.exec == 0),
            "s_cbranch_execnz" => Some(wave.exec != 0),
            "s_cbranch_vccz" => vcc.map(|v| v == 0),
            "s_cbranch_vccnz" => vcc.map(|v| v != 0),
            "s_cbranch_scc0" => wave.scc.map(|s| !s),
            "s_cbranch_scc1" => wave.scc,
            _ => None,
        };
        known.unwrap_or_else(|| {
            let distance = |to: Option<usize>| to.and_then(|t| far.get(t).copied().flatten()).unwrap_or(u32::MAX);
            let (go_on, leave) = (distance(Some(at + 1)), distance(self.steps[at].target));
            let toss = self.random.next() & 3;
            let jump = if go_on == leave || mostly && toss == 0 { self.random.next() & 1 == 1 } else { leave < go_on };
            match self.steps[at].mnemonic {
                "s_cbranch_scc0" => wave.scc = Some(!jump),
                "s_cbranch_scc1" => wave.scc = Some(jump),
                _ => {}
            }
            jump
        })
    }

    fn execute(&mut self, step: &Step, wave: &mut Wave) {
        let random = &mut self.random;
        let name = step.mnemonic;
        let operand = |i: usize| step.operands.get(i).copied().unwrap_or(Operand::Other);
        if let Some(name) = name.strip_prefix("s_") {
            scalar(name, &step.operands, wave, random);
        } else if name.starts_with("v_cmpx") {
            wave.exec &= random.mask();
        } else if name.starts_with("v_cmp") || name.starts_with("v_div_scale") || name.contains("_co_") || name.starts_with("v_mad_") {
            // A comparison's result, or a carry, which stands second. The short forms of comparisons name VCC too.
            let place = if name.starts_with("v_cmp") { operand(0) } else { operand(1) };
            let value = wave.exec & random.mask();
            wave.set(place, Some(value), random);
        } else if name.starts_with("v_writelane") {
            if let (Operand::Vector(register), Operand::Literal(lane)) = (operand(0), operand(2)) {
                let value = wave.get(operand(1));
                wave.kept.retain(|(r, l, _)| (*r, *l) != (register, lane));
                wave.kept.push((register, lane, value));
            }
        } else if name.starts_with("v_readlane") {
            let kept = match (operand(1), operand(2)) {
                (Operand::Vector(register), Operand::Literal(lane)) => {
                    wave.kept.iter().find(|(r, l, _)| (*r, *l) == (register, lane)).and_then(|(.., v)| *v)
                }
                _ => None,
            };
            wave.set(operand(0), kept, random);
        } else if name.starts_with("v_readfirstlane") {
            wave.set(operand(0), None, random);
        }
    }
}

/// A scalar instruction; `name` is without `s_`.
fn scalar(name: &str, operands: &[Operand], wave: &mut Wave, random: &mut Random) {
    let operand = |i: usize| operands.get(i).copied().unwrap_or(Operand::Other);
    let base = name.strip_suffix("_b32").unwrap_or(name);
    if let Some(f) = base.strip_suffix("_saveexec").and_then(logic) {
        let (old, mask) = (wave.exec, wave.mask(operand(1), random));
        wave.exec = f(mask, old);
        wave.set(operand(0), Some(old), random);
        wave.scc = Some(wave.exec != 0);
    } else if let Some(f) = base.strip_suffix("_wrexec").and_then(logic) {
        wave.exec = f(wave.mask(operand(1), random), wave.exec);
        wave.set(operand(0), Some(wave.exec), random);
        wave.scc = Some(wave.exec != 0);
    } else if let Some(f) = name.ends_with("_b32").then(|| logic(base)).flatten() {
        // Of an ordinary number and a mask nothing is known, unless EXEC is to come of it.
        let known = wave.get(operand(1)).zip(wave.get(operand(2)));
        let value = if operands.contains(&Operand::Exec) {
            Some(f(wave.mask(operand(1), random), wave.mask(operand(2), random)))
        } else {
            known.map(|(a, b)| f(a, b))
        };
        wave.set(operand(0), value, random);
        wave.scc = value.map(|v| v != 0);
    } else {
        other_scalar(name, operands, wave, random);
    }
}

fn other_scalar(name: &str, operands: &[Operand], wave: &mut Wave, random: &mut Random) {
    let operand = |i: usize| operands.get(i).copied().unwrap_or(Operand::Other);
    let a = wave.get(operand(0));
    match name {
        "mov_b32" => wave.set(operand(0), wave.get(operand(1)), random),
        "mov_b64" => {
            let pair = match operand(1) {
                Operand::Scalar(n, 2) => [wave.scalar[n], wave.scalar[n + 1]],
                Operand::Literal(v) => [Some(v), Some(if (v as i32) < 0 { FULL } else { 0 })],
                _ => [None; 2],
            };
            if let Operand::Scalar(n, 2) = operand(0) {
                wave.scalar[n..n + 2].copy_from_slice(&pair);
            }
        }
        "not_b32" => {
            let value = wave.get(operand(1)).map(|v| !v);
            wave.set(operand(0), value, random);
            wave.scc = value.map(|v| v != 0);
        }
        "cselect_b32" => {
            let choice = *wave.scc.get_or_insert_with(|| random.next() & 1 == 1);
            wave.set(operand(0), wave.get(operand(if choice { 1 } else { 2 })), random);
        }
        "cmov_b32" => {
            if *wave.scc.get_or_insert_with(|| random.next() & 1 == 1) {
                wave.set(operand(0), wave.get(operand(1)), random);
            }
        }
        "cmp_eq_u32" | "cmp_eq_i32" => wave.scc = a.zip(wave.get(operand(1))).map(|(a, b)| a == b),
        "cmp_lg_u32" | "cmp_lg_i32" => wave.scc = a.zip(wave.get(operand(1))).map(|(a, b)| a != b),
        _ if name.starts_with("cmp") || name.starts_with("bitcmp") => wave.scc = None,
        // These write neither a register nor SCC.
        _ if ["wait", "barrier", "delay", "clause", "nop", "set", "send", "store", "prefetch"].iter().any(|p| name.starts_with(p)) => {}
        _ => {
            wave.set(operand(0), None, random);
            // Moves, loads, extensions and 64-bit shifts aside, scalar arithmetic sets SCC.
            let keeps = ["mov", "load", "buffer_load", "sext", "mul_i32", "mul_hi", "cvt", "getreg", "getpc", "pack", "bfm", "brev", "ff"];
            if !keeps.iter().any(|p| name.starts_with(p)) {
                wave.scc = None;
            }
        }
    }
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
