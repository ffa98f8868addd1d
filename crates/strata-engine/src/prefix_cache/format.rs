//! A checkpoint as a file: a header that names what it is of, then its arrays, each part with a checksum.
//!
//! One file holds all of one checkpoint, cells included, and refers to no other: it is complete with the rename that gives it its
//! name, and the same file is what a session is saved to. Sharing pages between files would save space, and cost a second kind
//! of file whose loss breaks others.

use crate::checkpoint::{Checkpoint, PAGE, Page};
use crate::speculate::Drafted;
use bytemuck::{cast_slice, cast_slice_mut};
use std::io::{self, Read, Write};
use std::sync::Arc;
use strata_ops::backend::OpError;
use thiserror::Error;
use twox_hash::XxHash3_128;

/// What these files begin with. The number is written in this machine's byte order, as are all arrays: another order is another magic.
const MAGIC: u64 = u64::from_le_bytes(*b"stratast");
/// The format, and the definitions of NUMERICS.md that the states were computed by. Either changes: raise it.
const VERSION: u64 = 1;

/// What a checkpoint can be used with: the model, the kind of KV rows, shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Of everything that has an effect on a state.
    hash: u128,
    shapes: Shapes,
}

/// Sizes of a batch's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shapes {
    /// Values of the states that recur.
    pub states: usize,
    /// Bytes of a block of cells, of all layers, and of the MTP block's; cells of a block.
    pub block_bytes: usize,
    pub mtp_block_bytes: usize,
    pub block: usize,
    /// Values of an open block and of a residual of the MTP block, and whether there are any.
    pub open: usize,
    pub wide: usize,
    pub drafts: bool,
    pub vocab: usize,
    /// Tokens that a sequence can hold.
    pub capacity: usize,
}

/// Why a file is not a checkpoint for this configuration.
#[derive(Debug, Error)]
pub enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Memory(#[from] OpError),
    #[error("{field}: expected {expected}, found {found}")]
    Refused { field: &'static str, expected: String, found: String },
}

fn refused<T>(field: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, FileError> {
    Err(FileError::Refused { field, expected: expected.to_string(), found: found.to_string() })
}

impl Configuration {
    /// `model` is what [`identity`](super::identity) says of its files and of how they are bound; `kv` names the kind of KV rows.
    pub(crate) fn new(model: u128, kv: &str, shapes: Shapes) -> Configuration {
        let Shapes { states, block_bytes, mtp_block_bytes, block, open, wide, drafts, vocab, capacity: _ } = shapes;
        let numbers = [VERSION as usize, states, block_bytes, mtp_block_bytes, block, open, wide, drafts.into(), vocab];
        let all = [&model.to_ne_bytes(), cast_slice(&numbers), kv.as_bytes()].concat();
        Configuration { hash: XxHash3_128::oneshot(&all), shapes }
    }

    /// The first half of a file's name in a cache.
    pub(crate) fn name(&self) -> u64 {
        self.hash as u64
    }

    /// Bytes of the cells of a sequence of so many tokens, page by page.
    fn pages(&self, cells: usize, block_bytes: usize) -> impl Iterator<Item = usize> {
        let block = self.shapes.block;
        (0..cells.div_ceil(PAGE)).map(move |p| (cells - p * PAGE).min(PAGE).div_ceil(block) * block_bytes)
    }
}

/// The header: numbers, then a checksum of them. Tokens follow, with theirs.
const NUMBERS: usize = 9;
const HEADER: usize = 8 * NUMBERS + 16;

#[derive(Clone, Copy, Debug)]
struct Header {
    tokens: usize,
    /// Of the MTP block: rows, rows before the first that was left out, residuals that wait.
    rows: usize,
    whole: usize,
    carried: usize,
}

impl Header {
    fn of(c: &Checkpoint, config: &Configuration) -> Header {
        let carried = |m: &Drafted| m.carried.len() / config.shapes.wide.max(1);
        let m = c.mtp.as_ref();
        Header { tokens: c.tokens.len(), rows: m.map_or(0, |m| m.rows), whole: m.map_or(0, |m| m.whole), carried: m.map_or(0, carried) }
    }

    fn bytes(&self, config: &Configuration) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let hash = [config.hash as u64, (config.hash >> 64) as u64];
        let numbers = [MAGIC, VERSION, hash[0], hash[1], self.tokens as u64, self.rows as u64, self.whole as u64, self.carried as u64, 0];
        out[..8 * NUMBERS].copy_from_slice(cast_slice(&numbers));
        let sum = XxHash3_128::oneshot(&out[..8 * NUMBERS]);
        out[8 * NUMBERS..].copy_from_slice(&sum.to_ne_bytes());
        out
    }

    /// Reads and checks a header: what it says fits the configuration and a file of `len` bytes.
    fn read(from: &mut impl Read, config: &Configuration, len: u64) -> Result<Header, FileError> {
        let mut bytes = [0; HEADER];
        from.read_exact(&mut bytes)?;
        let n: [u64; NUMBERS] = std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[8 * i + j])));
        if n[0] != MAGIC || n[1] != VERSION {
            return refused("kind of file", format!("{MAGIC:x} {VERSION}"), format!("{:x} {}", n[0], n[1]));
        }
        let sum = XxHash3_128::oneshot(&bytes[..8 * NUMBERS]).to_ne_bytes();
        if sum[..] != bytes[8 * NUMBERS..] {
            return refused("checksum of the header", format!("{sum:x?}"), format!("{:x?}", &bytes[8 * NUMBERS..]));
        }
        let hash = u128::from(n[2]) | u128::from(n[3]) << 64;
        if hash != config.hash {
            return refused("model and configuration", format!("{:032x}", config.hash), format!("{hash:032x}"));
        }
        // sizes that fit the context: no sum below can overflow, and no array is larger than a slot's
        let size = |i: usize| usize::try_from(n[i]).unwrap_or(usize::MAX);
        let h = Header { tokens: size(4), rows: size(5), whole: size(6), carried: size(7) };
        let most = config.shapes.capacity;
        if h.tokens == 0 || h.tokens >= most || h.rows > h.tokens || h.carried > h.tokens - h.rows {
            return refused(
                "tokens",
                format!("1 to {}", most - 1),
                format!("{} ({} and {} of the MTP block)", h.tokens, h.rows, h.carried),
            );
        }
        let expected = h.file_bytes(config);
        if expected != len {
            return refused("length", expected, len);
        }
        Ok(h)
    }

    fn file_bytes(&self, config: &Configuration) -> u64 {
        let mut sum = HEADER as u64;
        self.parts(config, |bytes| sum += bytes as u64 + 16);
        sum
    }

    /// The bytes of each array, in order.
    fn parts(&self, c: &Configuration, mut part: impl FnMut(usize)) {
        part(4 * self.tokens);
        part(4 * c.shapes.states);
        c.pages(self.tokens, c.shapes.block_bytes).for_each(&mut part);
        if c.shapes.drafts {
            part(4 * c.shapes.open);
            part(4 * self.carried * c.shapes.wide);
            part(4 * self.carried.saturating_sub(1));
            c.pages(self.rows, c.shapes.mtp_block_bytes).for_each(&mut part);
        }
    }
}

fn put(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.write_all(&XxHash3_128::oneshot(bytes).to_ne_bytes())
}

/// Reads an array of a known length and checks it.
fn get<T: bytemuck::Pod + Default>(from: &mut impl Read, len: usize, what: &'static str) -> Result<Vec<T>, FileError> {
    let mut v = crate::checkpoint::zeroed(len, what)?;
    let bytes: &mut [u8] = cast_slice_mut(&mut v);
    from.read_exact(bytes)?;
    let (found, mut sum) = (XxHash3_128::oneshot(bytes), [0; 16]);
    from.read_exact(&mut sum)?;
    if found.to_ne_bytes() != sum {
        return refused(what, format!("checksum {:032x}", u128::from_ne_bytes(sum)), format!("{found:032x}"));
    }
    Ok(v)
}

fn get_pages(from: &mut impl Read, sizes: impl Iterator<Item = usize>) -> Result<Vec<Arc<Page>>, FileError> {
    sizes.map(|n| Ok(Arc::new(Page(get(from, n, "page")?)))).collect()
}

/// Bytes of a checkpoint's file.
pub(crate) fn file_bytes(c: &Checkpoint, config: &Configuration) -> u64 {
    Header::of(c, config).file_bytes(config)
}

/// Writes a checkpoint that a batch of this configuration made.
pub(crate) fn write(c: &Checkpoint, config: &Configuration, to: &mut impl Write) -> io::Result<()> {
    to.write_all(&Header::of(c, config).bytes(config))?;
    put(to, cast_slice(&c.tokens))?;
    put(to, cast_slice(&c.states))?;
    c.pages.iter().try_for_each(|p| put(to, &p.0))?;
    if let Some(m) = &c.mtp {
        put(to, cast_slice(&m.open))?;
        put(to, cast_slice(&m.carried))?;
        put(to, cast_slice(&m.next))?;
        m.pages.iter().try_for_each(|p| put(to, &p.0))?;
    }
    Ok(())
}

/// Reads the tokens of a file of `len` bytes.
pub(crate) fn read_tokens(from: &mut impl Read, config: &Configuration, len: u64) -> Result<Vec<u32>, FileError> {
    let h = Header::read(from, config, len)?;
    tokens(from, config, h)
}

fn tokens(from: &mut impl Read, config: &Configuration, h: Header) -> Result<Vec<u32>, FileError> {
    let tokens: Vec<u32> = get(from, h.tokens, "tokens")?;
    match tokens.iter().find(|t| **t as usize >= config.shapes.vocab) {
        Some(t) => refused("tokens", format!("ids below {}", config.shapes.vocab), t),
        None => Ok(tokens),
    }
}

/// Reads a file of `len` bytes.
pub(crate) fn read(from: &mut impl Read, config: &Configuration, len: u64) -> Result<Checkpoint, FileError> {
    let h = Header::read(from, config, len)?;
    let tokens = tokens(from, config, h)?;
    let states = get(from, config.shapes.states, "states")?;
    let pages = get_pages(from, config.pages(h.tokens, config.shapes.block_bytes))?;
    let mtp = if config.shapes.drafts {
        Some(Drafted {
            rows: h.rows,
            whole: h.whole,
            open: get(from, config.shapes.open, "open block")?,
            carried: get(from, h.carried * config.shapes.wide, "residuals")?,
            next: get(from, h.carried.saturating_sub(1), "next tokens")?,
            pages: get_pages(from, config.pages(h.rows, config.shapes.mtp_block_bytes))?,
        })
    } else {
        None
    };
    Ok(Checkpoint { tokens, states, pages, mtp })
}
