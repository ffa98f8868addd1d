//! The committed tables below `kernels/resources`: one line a kernel, the compiler's version at the head.

use std::fs;
use std::path::Path;

use super::resources::Resources;
use crate::error::{GpuError, Result};

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub kernel: String,
    pub resources: Resources,
    /// Instructions of the longest innermost loop; `None` where there is none.
    pub inner_loop: Option<usize>,
    /// Percent of the waves a multiprocessor can hold, without dynamic shared memory.
    pub occupancy: Option<u64>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub compiler: String,
    /// In order of name.
    pub rows: Vec<Row>,
}

const COMPILER: &str = "# compiler: ";
const COLUMNS: [&str; 9] = ["registers", "scalars", "shared", "scratch", "spills", "scalar-spills", "code", "loop", "waves%"];

impl Row {
    /// Names and figures, as texts.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, String)> {
        let r = &self.resources;
        let fixed = [r.registers, r.scalars, r.shared, r.scratch, r.spills, r.scalar_spills, r.code].map(|n| Some(n.to_string()));
        let derived = [self.inner_loop.map(|n| n.to_string()), self.occupancy.map(|n| n.to_string())];
        let texts = fixed.into_iter().chain(derived).map(|t| t.unwrap_or_else(|| "-".into()));
        COLUMNS.into_iter().zip(texts)
    }

    fn parse(line: &str) -> Option<Row> {
        let mut words = line.split_whitespace();
        let kernel = words.next()?.to_string();
        let numbers = words.map(|w| if w == "-" { Some(None) } else { w.parse().ok().map(Some) }).collect::<Option<Vec<Option<u64>>>>()?;
        let [registers, scalars, shared, scratch, spills, scalar_spills, code, inner_loop, occupancy] = numbers[..] else { return None };
        let resources = Resources {
            registers: registers?,
            scalars: scalars?,
            shared: shared?,
            scratch: scratch?,
            spills: spills?,
            scalar_spills: scalar_spills?,
            code: code?,
        };
        Some(Row { kernel, resources, inner_loop: inner_loop.map(|n| n as usize), occupancy })
    }
}

impl Table {
    pub fn row(&self, kernel: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.kernel == kernel)
    }

    /// The text of a table's file.
    pub fn text(&self) -> String {
        let width = self.rows.iter().map(|r| r.kernel.len()).max().unwrap_or(0).max(8);
        let mut text = format!("{COMPILER}{}\n# {:<w$}", self.compiler, "kernel", w = width - 2);
        for name in COLUMNS {
            text += &format!(" {name:>9}");
        }
        for row in &self.rows {
            text += &format!("\n{:<width$}", row.kernel);
            for (_, figure) in row.figures() {
                text += &format!(" {figure:>9}");
            }
        }
        text + "\n"
    }

    pub fn parse(text: &str) -> Option<Table> {
        let compiler = text.lines().next()?.strip_prefix(COMPILER)?.to_string();
        let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
        Some(Table { compiler, rows: lines.map(Row::parse).collect::<Option<_>>()? })
    }

    /// The committed table of an architecture; `None` where there is none.
    pub fn read(dir: &Path, arch: &str) -> Result<Option<Table>> {
        let path = dir.join(format!("{arch}.txt"));
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        Table::parse(&text).map(Some).ok_or_else(|| malformed(&path, "expected a head with the compiler and lines of ten words"))
    }

    pub fn write(&self, dir: &Path, arch: &str) -> Result<()> {
        let path = dir.join(format!("{arch}.txt"));
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&path, self.text()));
        written.map_err(|source| GpuError::Io { path: path.display().to_string(), source })
    }
}

/// A file's text.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| GpuError::Io { path: path.display().to_string(), source })
}

/// The error for a file that is not what it should be.
pub fn malformed(path: &Path, what: &str) -> GpuError {
    GpuError::Io { path: path.display().to_string(), source: std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_back() {
        let resources = Resources { registers: 24, scalars: 18, shared: 16, scratch: 0, spills: 0, scalar_spills: 7, code: 812 };
        let row = |kernel: &str, inner_loop| Row { kernel: kernel.into(), resources: resources.clone(), inner_loop, occupancy: Some(100) };
        let table = Table { compiler: "clang 22.1.4".into(), rows: vec![row("a", Some(34)), row("long_name", None)] };
        assert_eq!(Table::parse(&table.text()), Some(table));
        assert_eq!(Table::parse("a 1 2 3"), None);
        assert_eq!(Table::parse("# compiler: x\na 1 2 3"), None);
    }
}
