//! Disassembly: the programs, and their text as instructions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::compile::{self, Image};
use crate::error::{GpuError, Result};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Predicate (NVIDIA), mnemonic and operands.
    pub text: String,
    /// Where a branch goes: an index into the function's code.
    pub target: Option<usize>,
}

impl Instruction {
    /// Without the predicate and the operands.
    pub fn mnemonic(&self) -> &str {
        self.text.split_whitespace().find(|w| !w.starts_with('@')).unwrap_or_default()
    }
}

/// A kernel's code.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub code: Vec<Instruction>,
}

impl Function {
    /// Instructions of the longest loop that holds no other loop; hints to the scheduler are not counted.
    pub fn longest_innermost_loop(&self) -> Option<usize> {
        let back = |(at, i): (usize, &Instruction)| i.target.filter(|t| *t < at).map(|t| (t, at));
        let loops: Vec<(usize, usize)> = self.code.iter().enumerate().filter_map(back).collect();
        let innermost = |l: &&(usize, usize)| !loops.iter().any(|o| o != *l && o.0 >= l.0 && o.1 <= l.1);
        let counts = |i: &&Instruction| !matches!(i.mnemonic(), "s_nop" | "s_delay_alu" | "s_clause" | "NOP");
        loops.iter().filter(innermost).map(|(from, to)| self.code[*from..=*to].iter().filter(counts).count()).max()
    }
}

/// The code of an image. The error is `Missing` where the disassembler is not here.
pub fn disassemble(image: &Image) -> Result<Vec<Function>> {
    if image.arch.starts_with("gfx") {
        let text = run(&compile::llvm_tool("llvm-objdump")?, "llvm-objdump", "it comes with clang (package llvm-22)", &["-d"], image)?;
        Ok(parse_amd(&text))
    } else {
        let text = run(&nvdisasm(), "nvdisasm", "it comes with the CUDA toolkit; or set STRATA_NVDISASM", &["-c"], image)?;
        Ok(parse_nvidia(&text))
    }
}

/// `STRATA_NVDISASM`, else beside the NVRTC in use, else by name.
fn nvdisasm() -> String {
    if let Ok(set) = env::var("STRATA_NVDISASM") {
        return set;
    }
    let beside = compile::nvrtc_path().ok().and_then(|p| Some(p.parent()?.parent()?.join("bin/nvdisasm")));
    beside.filter(|p| p.exists()).unwrap_or_else(|| "nvdisasm".into()).to_string_lossy().into_owned()
}

fn run(program: &str, what: &'static str, hint: &str, options: &[&str], image: &Image) -> Result<String> {
    let file = Temporary::new(&image.bytes)?;
    let output = Command::new(program).args(options).arg(&file.0).output();
    let output = output.map_err(|_| GpuError::Missing { what, tried: program.to_string(), hint: hint.to_string() })?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(GpuError::Compile { file: format!("({what})"), arch: image.arch.clone(), log });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A file that goes when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(bytes: &[u8]) -> Result<Temporary> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("strata-audit-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::write(&path, bytes).map_err(|source| GpuError::Io { path: path.display().to_string(), source })?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What stays behind in the temporary directory harms nothing.
        let _ = fs::remove_file(Path::new(&self.0));
    }
}

/// A function while it is read: its address, and of each instruction the address and that of a branch's target.
struct Reading {
    base: u64,
    function: Function,
    places: Vec<(u64, Option<u64>)>,
}

/// The text of `llvm-objdump -d`.
pub fn parse_amd(text: &str) -> Vec<Function> {
    let mut functions: Vec<Reading> = Vec::new();
    for line in text.lines() {
        if let Some((address, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            let function = Function { name: name.to_string(), code: Vec::new() };
            functions.push(Reading { base: address, function, places: Vec::new() });
        } else if let Some((code, comment)) = line.split_once("//")
            && let Some(Reading { base, function, places }) = functions.last_mut()
        {
            let address = comment.split(':').next().and_then(|a| u64::from_str_radix(a.trim(), 16).ok()).unwrap_or(0);
            let label = comment.split_once('<').and_then(|(_, l)| l.strip_suffix('>'));
            let target = label.and_then(|l| match l.rsplit_once("+0x") {
                Some((_, offset)) => u64::from_str_radix(offset, 16).ok().map(|o| *base + o),
                None => Some(*base),
            });
            places.push((address, target));
            function.code.push(Instruction { text: code.trim().to_string(), target: None });
        }
    }
    let finish = |Reading { mut function, places, .. }: Reading| {
        for (instruction, (_, target)) in function.code.iter_mut().zip(&places) {
            instruction.target = target.and_then(|t| places.iter().position(|(a, _)| *a == t));
        }
        // Padding to the next cache line.
        while function.code.last().is_some_and(|i| matches!(i.mnemonic(), "s_nop" | "s_code_end")) {
            function.code.pop();
        }
        function
    };
    functions.into_iter().map(finish).collect()
}

/// The text of `nvdisasm -c`.
pub fn parse_nvidia(text: &str) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    let mut labels: HashMap<&str, (usize, usize)> = HashMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix(".section").and_then(|l| l.trim().strip_prefix(".text.")) {
            functions.push(Function { name: name.split(',').next().unwrap_or_default().to_string(), code: Vec::new() });
        } else if let Some(label) = line.strip_suffix(':') {
            let at = functions.last().map_or(0, |f| f.code.len());
            labels.insert(label, (functions.len(), at));
        } else if let Some((_, code)) = line.strip_prefix("/*").and_then(|l| l.split_once("*/"))
            && let Some((code, _)) = code.split_once(';')
            && let Some(function) = functions.last_mut()
        {
            function.code.push(Instruction { text: code.trim().to_string(), target: None });
        }
    }
    for (number, function) in functions.iter_mut().enumerate() {
        for instruction in &mut function.code {
            let label = instruction.text.split_once("`(").and_then(|(_, l)| l.split(')').next());
            let place = label.filter(|_| instruction.mnemonic().starts_with("BRA")).and_then(|l| labels.get(l));
            instruction.target = place.filter(|(f, _)| *f == number + 1).map(|(_, at)| *at);
        }
        while function.code.last().is_some_and(|i| i.mnemonic() == "NOP") {
            function.code.pop();
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amd_text() {
        let text = "
k.hsaco:\tfile format elf64-amdgpu

0000000000001000 <k>:
\ts_mov_b32 s0, 0                                            // 000000001000: BE800080
\tv_add_nc_u32_e32 v0, 1, v0                                 // 000000001004: 4A000081
\ts_delay_alu instid0(VALU_DEP_1)                            // 000000001008: BF870001
\ts_cbranch_scc1 65533                                       // 00000000100C: BFA2FFFD <k+0x4>
\ts_endpgm                                                   // 000000001010: BFB00000
\ts_nop 0                                                    // 000000001014: BF800000
";
        let functions = parse_amd(text);
        assert_eq!(functions.len(), 1);
        let code = &functions[0].code;
        assert_eq!(code.len(), 5);
        assert_eq!(code[3].target, Some(1));
        assert_eq!(code[1].mnemonic(), "v_add_nc_u32_e32");
        assert_eq!(functions[0].longest_innermost_loop(), Some(2));
    }

    #[test]
    fn nvidia_text() {
        let text = "
\t.section\t.text.k,\"ax\",@progbits
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   FADD R0, R0, R1 ;
.L_x_1:
        /*0020*/               @P0 BRA `(.L_x_1);
        /*0030*/              @!P0 BRA `(.L_x_0) ;
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
        /*0060*/                   NOP;
";
        let functions = parse_nvidia(text);
        assert_eq!(functions[0].name, "k");
        assert_eq!(functions[0].code.len(), 6);
        assert_eq!(functions[0].code[3].mnemonic(), "BRA");
        assert_eq!(functions[0].code[3].target, Some(1));
        // Branches to themselves are the endless loop behind the end, no loop of the kernel's.
        assert_eq!(functions[0].longest_innermost_loop(), Some(3));
    }
}
