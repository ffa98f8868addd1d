//! A reader of 64-bit little-endian ELF files: sections and symbols, no more. Images come from compilers, yet no offset is trusted.

/// A section.
#[derive(Debug)]
pub struct Section<'a> {
    pub name: String,
    pub kind: u32,
    pub link: u32,
    /// Its size in memory; a section without contents (shared memory) has one too.
    pub size: u64,
    pub data: &'a [u8],
}

/// A symbol: name and size. Its position is its index in the table.
#[derive(Debug)]
pub struct Symbol {
    pub name: String,
    pub size: u64,
}

/// A parsed file.
#[derive(Debug)]
pub struct Elf<'a> {
    pub sections: Vec<Section<'a>>,
}

const NO_BITS: u32 = 8;

fn bytes(data: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    data.get(at..at.checked_add(usize::try_from(length).ok()?)?)
}

pub fn u16_at(data: &[u8], at: u64) -> Option<u16> {
    Some(u16::from_le_bytes(bytes(data, at, 2)?.try_into().ok()?))
}

pub fn u32_at(data: &[u8], at: u64) -> Option<u32> {
    Some(u32::from_le_bytes(bytes(data, at, 4)?.try_into().ok()?))
}

fn u64_at(data: &[u8], at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(bytes(data, at, 8)?.try_into().ok()?))
}

/// The text from an offset to the next zero.
fn string(table: &[u8], at: u32) -> Option<String> {
    let rest = table.get(at as usize..)?;
    Some(String::from_utf8_lossy(rest.split(|b| *b == 0).next()?).into_owned())
}

impl<'a> Elf<'a> {
    /// `None` for what is no such file or is cut off.
    pub fn parse(data: &'a [u8]) -> Option<Elf<'a>> {
        // Magic, 64 bits, little-endian.
        if !data.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let table = u64_at(data, 40)?;
        let (entry, count, names) = (u64::from(u16_at(data, 58)?), u64::from(u16_at(data, 60)?), u64::from(u16_at(data, 62)?));
        let header = |i: u64| bytes(data, table.checked_add(i * entry)?, 64);
        let contents = |h: &[u8]| match u32_at(h, 4)? {
            NO_BITS => Some(&data[..0]),
            _ => bytes(data, u64_at(h, 24)?, u64_at(h, 32)?),
        };
        let names = contents(header(names)?)?;
        let section = |i| {
            let h = header(i)?;
            Some(Section {
                name: string(names, u32_at(h, 0)?)?,
                kind: u32_at(h, 4)?,
                link: u32_at(h, 40)?,
                size: u64_at(h, 32)?,
                data: contents(h)?,
            })
        };
        Some(Elf { sections: (0..count).map(section).collect::<Option<_>>()? })
    }

    pub fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// The symbols of `.symtab`, else of `.dynsym`.
    pub fn symbols(&self) -> Vec<Symbol> {
        let Some(table) = self.section(".symtab").or_else(|| self.section(".dynsym")) else { return Vec::new() };
        let Some(names) = self.sections.get(table.link as usize) else { return Vec::new() };
        let entries = table.data.chunks_exact(24);
        entries.map_while(|e| Some(Symbol { name: string(names.data, u32_at(e, 0)?)?, size: u64_at(e, 16)? })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One section `.x` with contents `hi`, and the table of names.
    fn small() -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file.extend_from_slice(b"hi\0.x\0");
        let table = file.len() as u64;
        for (name, offset, size) in [(3_u32, 64_u64, 2_u64), (0, 66, 4)] {
            let mut h = vec![0; 64];
            h[..4].copy_from_slice(&(name - u32::from(name == 3) * 2).to_le_bytes());
            h[4] = 1;
            h[24..32].copy_from_slice(&offset.to_le_bytes());
            h[32..40].copy_from_slice(&size.to_le_bytes());
            file.extend_from_slice(&h);
        }
        file[40..48].copy_from_slice(&table.to_le_bytes());
        file[58] = 64;
        file[60] = 2;
        file[62] = 1;
        file
    }

    #[test]
    fn sections_are_found_and_cut_files_refused() {
        let file = small();
        let elf = Elf::parse(&file).expect("whole");
        assert_eq!(elf.section(".x").map(|s| s.data), Some(&b"hi"[..]));
        for cut in 0..file.len() {
            assert!(Elf::parse(&file[..cut]).is_none(), "cut at {cut}");
        }
        assert!(Elf::parse(b"MZ").is_none());
    }
}
