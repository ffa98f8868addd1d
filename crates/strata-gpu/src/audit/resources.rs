//! What each kernel of an image takes, read from the image itself.

use super::elf::{Elf, u16_at, u32_at};
use super::msgpack::Value;
use crate::compile::Image;

/// The resources of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a lane (VGPRs).
    pub registers: u64,
    /// Scalar registers of a wave; 0 on NVIDIA.
    pub scalars: u64,
    /// Shared memory of fixed size, bytes. What a launch adds is not in the image.
    pub shared: u64,
    /// Scratch or local memory of a lane, bytes.
    pub scratch: u64,
    /// Spilled VGPRs; on NVIDIA bytes of spill stores and loads.
    pub spills: u64,
    /// Scalar registers spilled to lanes of vector registers.
    pub scalar_spills: u64,
    /// Machine code, bytes.
    pub code: u64,
}

/// Kernel names and resources, in the image's order; `None` for what is not an image of a known kind.
pub fn read(image: &Image) -> Option<Vec<(String, Resources)>> {
    let elf = Elf::parse(&image.bytes)?;
    if image.arch.starts_with("gfx") { amd(&elf) } else { nvidia(&elf, &image.log) }
}

const NOTE: u32 = 7;
const AMD_METADATA: u32 = 32;

fn amd(elf: &Elf) -> Option<Vec<(String, Resources)>> {
    let metadata = elf.sections.iter().filter(|s| s.kind == NOTE).find_map(|s| note(s.data))?;
    let symbols = elf.symbols();
    let kernels = Value::parse(metadata)?.get("amdhsa.kernels")?.list().to_vec();
    let read = |k: &Value| {
        let name = k.get(".name")?.text()?.to_string();
        let number = |key: &str| k.get(key).and_then(Value::int);
        let resources = Resources {
            registers: number(".vgpr_count")?,
            scalars: number(".sgpr_count")?,
            shared: number(".group_segment_fixed_size")?,
            scratch: number(".private_segment_fixed_size")?,
            spills: number(".vgpr_spill_count").unwrap_or(0),
            scalar_spills: number(".sgpr_spill_count").unwrap_or(0),
            code: symbols.iter().find(|s| s.name == name)?.size,
        };
        Some((name, resources))
    };
    kernels.iter().map(read).collect()
}

/// The contents of AMD's metadata note. Notes: lengths of name and contents, type, then both, padded to words.
fn note(mut data: &[u8]) -> Option<&[u8]> {
    loop {
        let (name, length, kind) = (u32_at(data, 0)? as usize, u32_at(data, 4)? as usize, u32_at(data, 8)?);
        let start = 12 + name.next_multiple_of(4);
        let contents = data.get(start..start.checked_add(length)?)?;
        if kind == AMD_METADATA && data.get(12..)?.starts_with(b"AMDGPU\0") {
            return Some(contents);
        }
        data = data.get(start + length.next_multiple_of(4)..)?;
    }
}

/// Attributes of `.nv.info`: format, code, then a length or a value.
const FRAME_SIZE: u8 = 0x11;
const REGISTER_COUNT: u8 = 0x2f;
const SIZED: u8 = 4;

fn nvidia(elf: &Elf, log: &str) -> Option<Vec<(String, Resources)>> {
    let symbols = elf.symbols();
    let attributes = attributes(elf.section(".nv.info")?.data);
    let attribute = |code: u8, name: &str| {
        let of = |index: u32| symbols.get(index as usize).is_some_and(|s| s.name == name);
        attributes.iter().find(|(c, index, _)| *c == code && of(*index)).map(|(.., value)| u64::from(*value))
    };
    let texts = elf.sections.iter().filter_map(|s| Some((s.name.strip_prefix(".text.")?, s)));
    let read = |(name, text): (&str, &super::elf::Section)| {
        let shared = elf.section(&format!(".nv.shared.{name}"));
        let resources = Resources {
            registers: attribute(REGISTER_COUNT, name)?,
            scalars: 0,
            shared: shared.map_or(0, |s| shared_in_use(name, s.size, log)),
            scratch: attribute(FRAME_SIZE, name)?,
            spills: spills(name, log),
            scalar_spills: 0,
            code: text.size,
        };
        Some((name.to_string(), resources))
    };
    texts.map(read).collect()
}

/// (code, symbol, value) of the attributes that consist of two words.
fn attributes(data: &[u8]) -> Vec<(u8, u32, u32)> {
    let mut list = Vec::new();
    let mut at = 0;
    while let (Some(&[format, code]), Some(length)) = (data.get(at..at + 2), u16_at(data, at as u64 + 2)) {
        at += 4;
        if format == SIZED {
            if let (8, Some(symbol), Some(value)) = (length, u32_at(data, at as u64), u32_at(data, at as u64 + 4)) {
                list.push((code, symbol, value));
            }
            at += usize::from(length).next_multiple_of(4);
        }
    }
    list
}

/// What the compiler's log says of a kernel: the lines from its name to the next one's.
fn log_of<'a>(name: &str, log: &'a str) -> impl Iterator<Item = &'a str> {
    let start = format!("Compiling entry function '{name}'");
    log.lines().skip_while(move |l| !l.contains(&start)).skip(1).take_while(|l| !l.contains("Compiling entry function"))
}

/// The number before a phrase.
fn before(line: &str, phrase: &str) -> Option<u64> {
    line.split_once(phrase)?.0.split_whitespace().next_back()?.parse().ok()
}

fn spills(name: &str, log: &str) -> u64 {
    let in_line = |l: &str| before(l, " bytes spill stores").unwrap_or(0) + before(l, " bytes spill loads").unwrap_or(0);
    log_of(name, log).map(in_line).sum()
}

/// The log's figure, where there is one: the section of some architectures includes what the system reserves.
fn shared_in_use(name: &str, section: u64, log: &str) -> u64 {
    let mut lines = log_of(name, log).filter(|l| l.contains(" registers"));
    lines.next().map_or(section, |l| before(l, " bytes smem").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 18 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compiling entry function 'ab' for 'sm_90a'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers
";

    #[test]
    fn the_log_is_read_by_kernel() {
        assert_eq!(spills("a", LOG), 20);
        assert_eq!(spills("ab", LOG), 0);
        assert_eq!(shared_in_use("a", 3072, LOG), 2048);
        assert_eq!(shared_in_use("ab", 1024, LOG), 0);
        assert_eq!(shared_in_use("none", 7, LOG), 7);
    }

    #[test]
    fn notes_end_with_the_data() {
        assert_eq!(note(&[]), None);
        assert_eq!(note(&[255; 64]), None);
        let mut data = vec![4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        data.extend_from_slice(b"GNU\0");
        data.extend_from_slice(&[7, 0, 0, 0, 3, 0, 0, 0, 32, 0, 0, 0]);
        data.extend_from_slice(b"AMDGPU\0\0abc\0");
        assert_eq!(note(&data), Some(&b"abc"[..]));
    }
}
