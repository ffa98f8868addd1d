//! Saved logits: a header that says of what, then rows of `f32`, little-endian.

use crate::error::CliError;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"strata-l";
/// Magic and five numbers.
const HEADER: usize = 8 + 5 * 8;

/// What the logits are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub vocab: u64,
    pub context: u64,
    pub stride: u64,
    /// Rows.
    pub scored: u64,
    /// Hash of the text's ids.
    pub text: u64,
}

impl Header {
    fn fields(&self) -> [(&'static str, u64); 5] {
        [
            ("vocabulary", self.vocab),
            ("--ctx", self.context),
            ("--stride", self.stride),
            ("positions", self.scored),
            ("hash of the text's ids", self.text),
        ]
    }
}

fn cannot(path: &Path) -> impl Fn(io::Error) -> CliError {
    move |error| CliError::File { path: path.to_owned(), error }
}

/// Writes rows.
pub struct LogitsWriter {
    path: PathBuf,
    out: BufWriter<File>,
}

impl LogitsWriter {
    pub fn create(path: &Path, header: &Header) -> Result<LogitsWriter, CliError> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(cannot(path))?);
        out.write_all(&MAGIC).map_err(cannot(path))?;
        for (_, n) in header.fields() {
            out.write_all(&n.to_le_bytes()).map_err(cannot(path))?;
        }
        Ok(LogitsWriter { path: path.to_owned(), out })
    }

    pub fn write(&mut self, logits: &[f32]) -> Result<(), CliError> {
        logits.iter().try_for_each(|l| self.out.write_all(&l.to_le_bytes())).map_err(cannot(&self.path))
    }

    pub fn finish(mut self) -> Result<(), CliError> {
        self.out.flush().map_err(cannot(&self.path))
    }
}

/// Reads rows, one at a time.
pub struct LogitsReader {
    path: PathBuf,
    input: BufReader<File>,
    bytes: Vec<u8>,
    row: Vec<f32>,
}

impl LogitsReader {
    /// Opens logits that must be those of `expected`.
    ///
    /// # Errors
    /// The file cannot be read, is no such file, is cut short, or holds the logits of something else.
    pub fn open(path: &Path, expected: &Header) -> Result<LogitsReader, CliError> {
        let bad = |what: &str, expected: String, found: String| {
            Err(CliError::Usage(format!("{}: {what}: expected {expected}, found {found}", path.display())))
        };
        let file = File::open(path).map_err(cannot(path))?;
        let len = file.metadata().map_err(cannot(path))?.len();
        let mut input = BufReader::with_capacity(1 << 20, file);
        let mut head = Vec::new();
        input.by_ref().take(HEADER as u64).read_to_end(&mut head).map_err(cannot(path))?;
        if head.len() < HEADER || head[..8] != MAGIC {
            return bad("start of the file", "saved logits".into(), format!("other bytes ({len} in all)"));
        }
        let found = head[8..].as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b));
        for ((name, want), found) in expected.fields().into_iter().zip(found) {
            if want != found {
                return bad(name, want.to_string(), found.to_string());
            }
        }
        let row_bytes = expected.vocab * 4;
        let want = HEADER as u64 + expected.scored * row_bytes;
        if len != want {
            return bad("size", format!("{want} bytes"), len.to_string());
        }
        let (bytes, row) = (vec![0; row_bytes as usize], vec![0.0; expected.vocab as usize]);
        Ok(LogitsReader { path: path.to_owned(), input, bytes, row })
    }

    /// The next row.
    pub fn next(&mut self) -> Result<&[f32], CliError> {
        self.input.read_exact(&mut self.bytes).map_err(cannot(&self.path))?;
        self.row.iter_mut().zip(self.bytes.as_chunks::<4>().0).for_each(|(x, b)| *x = f32::from_le_bytes(*b));
        Ok(&self.row)
    }
}
