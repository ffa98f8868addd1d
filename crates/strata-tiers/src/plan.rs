//! The planner: a pure function from sizes to places.

use crate::facts::{Facts, LayerExperts, NgramMode};
use crate::rows::cached_row_cost;
use crate::size::format_size;

/// Where dense weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dense {
    /// Copied into anonymous memory, in huge pages where the system has them.
    Copied,
    /// In the mapped file.
    Mapped,
}

/// Where the n-gram table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablePlace {
    /// There is none, or it is small: bound like any mapped table.
    Plain,
    /// Read row by row from the mapped file, rows asked for ahead.
    Mapped,
    /// Read past the page cache in blocks of this size.
    Direct { block: u64 },
}

/// What kind of memory a line of the plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RssAnon.
    Anonymous,
    /// File pages that are locked.
    Locked,
    /// File pages that the system may drop.
    File,
    /// On disk, read when needed.
    Disk,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Anonymous => "anonymous",
            Kind::Locked => "locked",
            Kind::File => "file pages",
            Kind::Disk => "disk",
        }
    }
}

/// A number of the plan with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub item: &'static str,
    pub kind: Kind,
    pub bytes: u64,
    pub reason: String,
}

/// Where everything goes, and what that takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Memory planned with.
    pub ram: u64,
    pub dense: Dense,
    /// Lock the anonymous dense weights too: there is swap.
    pub lock_dense: bool,
    pub huge_pages: bool,
    /// How many of the first experts of each layer are in memory, in the order of [`ModelFacts::layers`](crate::ModelFacts::layers).
    pub resident: Vec<u64>,
    pub lock_experts: bool,
    pub resident_bytes: u64,
    pub streamed_bytes: u64,
    /// Bytes that may be asked for ahead of their use.
    pub window: u64,
    pub table: TablePlace,
    /// Bytes of the row cache; 0 without reads past the page cache.
    pub row_cache: u64,
    pub lines: Vec<Line>,
    /// Expected peak of RssAnon.
    pub anonymous: u64,
    /// Expected locked file pages.
    pub locked: u64,
    /// Bytes a token is expected to read of experts that are not resident, wherever from.
    pub streamed_per_token: u64,
    /// Bytes a token is expected to read from disk.
    pub disk_per_token: u64,
    pub warnings: Vec<String>,
}

/// Tables below this stay as they are mapped: the page cache holds them with ease.
pub const SMALL_TABLE: u64 = 64 << 20;
/// The part of memory left to pages of streamed experts, as a divisor. A chunk of a prompt needs most experts of a layer: where their
/// pages do not fit side by side, they are dropped before they are used.
const STREAM_SHARE: u64 = 4;
/// What that part is at least, memory permitting.
const STREAM_FLOOR: u64 = 256 << 20;
/// Buffers of the read queue for table rows.
pub const QUEUE_BYTES: u64 = 2 << 20;

/// How many of the first experts of each layer fit into `budget` bytes: as many of every layer, then one more of the first layers.
pub fn spread(layers: &[LayerExperts], budget: u64) -> Vec<u64> {
    let round: u128 = layers.iter().map(|l| u128::from(l.expert_bytes)).sum();
    if round == 0 {
        return vec![0; layers.len()];
    }
    let mut each = u64::try_from(u128::from(budget) / round).unwrap_or(u64::MAX);
    let take = |each: u64| -> u128 { layers.iter().map(|l| u128::from(l.expert_bytes) * u128::from(each.min(l.experts))).sum() };
    // layers with fewer experts leave room for more of the others
    let most = layers.iter().map(|l| l.experts).max().unwrap_or(0);
    each = each.min(most);
    while each < most && take(each + 1) <= u128::from(budget) {
        each += 1;
    }
    let mut left = u128::from(budget) - take(each);
    let mut out: Vec<u64> = layers.iter().map(|l| each.min(l.experts)).collect();
    for (n, l) in out.iter_mut().zip(layers) {
        if *n == l.experts {
            continue;
        }
        if u128::from(l.expert_bytes) > left {
            break;
        }
        *n += 1;
        left -= u128::from(l.expert_bytes);
    }
    out
}

/// Decides where everything goes.
#[allow(clippy::too_many_lines, reason = "one number after another, each with its reason")]
pub fn plan(f: &Facts) -> Plan {
    let (m, c, sys) = (&f.model, &f.choices, &f.machine);
    let ram = c.ram.unwrap_or(sys.available);
    let mut lines = Vec::new();
    let mut warnings = Vec::new();
    let mut add = |item, kind, bytes, reason: String| {
        if bytes > 0 {
            lines.push(Line { item, kind, bytes, reason });
        }
    };
    add("program", Kind::Anonymous, m.program, "tokenizer, metadata, heap; measured now".into());
    add("vectors", Kind::Anonymous, m.vectors, "norms, taps and biases are f32 in memory".into());
    add("KV cache", Kind::Anonymous, m.kv, "for the whole context".into());
    add("states and scratch", Kind::Anonymous, m.work, "recurrent states, activations of a chunk, kernels' working memory".into());
    add("sampling", Kind::Anonymous, m.sampling, "logits, sampler, token history, position tables".into());
    add("prefix cache", Kind::Anonymous, m.prefix_cache, "states of prompts and answers, at most".into());
    let (table, table_reason) = place_table(f);
    let (row_cache, queue) = match (table, m.table) {
        (TablePlace::Direct { .. }, Some(t)) => {
            // a context cannot use more rows than it has tokens for
            let most = m.context.saturating_mul(t.per_token).saturating_mul(cached_row_cost(t.row_bytes));
            (c.row_cache.min(most), QUEUE_BYTES)
        }
        _ => (0, 0),
    };
    let row_reason = if row_cache == c.row_cache { "as --ngram-cache says" } else { "every row that the context can ask for" };
    add("row cache", Kind::Anonymous, row_cache, format!("rows of the n-gram table used lately: {row_reason}"));
    add("read queue", Kind::Anonymous, queue, "aligned buffers of reads under way".into());
    let mut anonymous = m.program + m.vectors + m.kv + m.work + m.sampling + m.prefix_cache + row_cache + queue;

    let streams = m.mapped && m.as_f32.is_none();
    let experts: u64 = m.layers.iter().map(|l| l.experts * l.expert_bytes).sum();
    let mut dense = Dense::Mapped;
    let mut room = 0;
    if let Some(bytes) = m.as_f32 {
        add("weights as f32", Kind::Anonymous, bytes, "--act f32 takes every matrix apart; no tiers".into());
        anonymous += bytes;
    } else if !m.mapped {
        add("weights", Kind::File, m.dense + m.copied + experts, "part of the program file".into());
    } else {
        add("copied experts", Kind::Anonymous, m.copied, "gate and up in one tensor are taken apart".into());
        anonymous += m.copied;
        if anonymous.saturating_add(m.dense) <= ram {
            dense = Dense::Copied;
            let pages = match sys.huge_page {
                Some(h) => format!("in pages of {}", format_size(h)),
                None => "the system has huge pages switched off".into(),
            };
            add("dense weights", Kind::Anonymous, m.dense, format!("every token reads them; copied, {pages}"));
            anonymous += m.dense;
            room = ram - anonymous;
        } else {
            add("dense weights", Kind::File, m.dense, "larger than the memory left: they stay in the mapped file".into());
            warnings.push(format!(
                "dense weights of {} do not fit beside {} of other memory into {}: every token may read them from disk",
                format_size(m.dense),
                format_size(anonymous),
                format_size(ram)
            ));
        }
    }
    if anonymous > ram {
        warnings.push(format!("{} of anonymous memory is more than {}", format_size(anonymous), format_size(ram)));
    }

    // what streams needs pages to stream through
    let stream = if experts <= room { 0 } else { STREAM_FLOOR.max(room / STREAM_SHARE).min(ram / STREAM_SHARE).min(room) };
    let fits = room - stream;
    let budget = c.resident_budget.map_or(fits, |b| b.min(fits));
    let resident = if streams { spread(&m.layers, budget) } else { vec![0; m.layers.len()] };
    let resident_bytes: u64 = resident.iter().zip(&m.layers).map(|(n, l)| n * l.expert_bytes).sum();
    let streamed_bytes = if streams { experts - resident_bytes } else { 0 };
    // a locked stretch takes whole pages at both ends
    let slack: u64 = resident.iter().zip(&m.layers).map(|(n, l)| if *n > 0 { l.tensors * sys.page } else { 0 }).sum();
    let lock_dense = c.lock && sys.swap && dense == Dense::Copied && m.dense <= sys.lock_limit;
    let left = sys.lock_limit - if lock_dense { m.dense } else { 0 };
    let lock_experts = c.lock && resident_bytes > 0 && resident_bytes + slack <= left;
    let locked = if lock_experts { resident_bytes + slack } else { 0 };
    if resident_bytes > 0 {
        let share = match (resident.iter().min(), resident.iter().max()) {
            (Some(a), Some(b)) if a == b => format!("the first {a} of every layer"),
            (Some(a), Some(b)) => format!("the first {a} or {b} of a layer"),
            _ => String::new(),
        };
        let why = if streamed_bytes == 0 {
            "all of them fit".to_owned()
        } else if c.resident_budget.is_some_and(|b| b <= fits) {
            format!("{share}: --resident-budget {}", format_size(budget))
        } else {
            format!("{share}: what fits into {} beside the rest", format_size(ram))
        };
        let (kind, how) = match (lock_experts, c.lock) {
            (true, _) => (Kind::Locked, "locked".to_owned()),
            (false, true) => (Kind::File, format!("read at load, not locked: the limit is {}", format_size(sys.lock_limit))),
            (false, false) => (Kind::File, "read at load, not locked: --mlock off".to_owned()),
        };
        add("resident experts", kind, if lock_experts { locked } else { resident_bytes }, format!("{why}; {how}"));
    }
    let pages = ram.saturating_sub(anonymous + resident_bytes);
    add(
        "streamed experts",
        Kind::Disk,
        streamed_bytes,
        format!("read ahead of use through {} of page cache", format_size(pages.min(streamed_bytes))),
    );
    if m.mapped {
        add("token embedding", Kind::Disk, m.embedding, "a token reads one row, from the mapped file".into());
    }
    if let Some(t) = &m.table {
        add("n-gram table", if table == TablePlace::Plain && !m.mapped { Kind::File } else { Kind::Disk }, t.bytes, table_reason);
    }

    let per_token = |l: &LayerExperts, n: u64| {
        let share = (l.experts - n) as f64 / l.experts.max(1) as f64;
        m.used.min(l.experts) as f64 * l.expert_bytes as f64 * share
    };
    let streamed_per_token = if streams { m.layers.iter().zip(&resident).map(|(l, n)| per_token(l, *n)).sum::<f64>() } else { 0.0 };
    let missing = if streamed_bytes == 0 { 0.0 } else { 1.0 - (pages as f64 / streamed_bytes as f64).min(1.0) };
    let rows = m.table.map_or(0.0, |t| match table {
        TablePlace::Plain => 0.0,
        TablePlace::Mapped => t.per_token as f64 * sys.page as f64 * (1.0 + t.row_bytes.saturating_sub(1) as f64 / sys.page as f64),
        TablePlace::Direct { block } => t.per_token as f64 * block as f64 * (1.0 + t.row_bytes.saturating_sub(1) as f64 / block as f64),
    });
    let unread_dense = if streams && dense == Dense::Mapped { m.dense.saturating_sub(ram.saturating_sub(anonymous)) as f64 } else { 0.0 };
    Plan {
        ram,
        dense,
        lock_dense,
        huge_pages: sys.huge_page.is_some(),
        resident,
        lock_experts,
        resident_bytes,
        streamed_bytes,
        window: pages.min(streamed_bytes) / 2,
        table,
        row_cache,
        lines,
        anonymous,
        locked,
        streamed_per_token: streamed_per_token as u64,
        disk_per_token: (streamed_per_token * missing + rows + unread_dense) as u64,
        warnings,
    }
}

fn place_table(f: &Facts) -> (TablePlace, String) {
    let Some(t) = &f.model.table else { return (TablePlace::Plain, String::new()) };
    let small = t.bytes < SMALL_TABLE;
    match (f.choices.ngram, &f.direct) {
        _ if !f.model.mapped => (TablePlace::Plain, "part of the program file".into()),
        (NgramMode::Auto, _) if small => (TablePlace::Plain, format!("below {}: mapped", format_size(SMALL_TABLE))),
        (NgramMode::Auto | NgramMode::Direct, Ok(block)) => (
            TablePlace::Direct { block: *block },
            format!("{} rows of {} B a token by io_uring, past the page cache, in blocks of {block} B", t.per_token, t.row_bytes),
        ),
        (NgramMode::Auto, Err(why)) => (TablePlace::Mapped, format!("{} rows a token from the mapped file: {why}", t.per_token)),
        (NgramMode::Direct, Err(why)) => (TablePlace::Mapped, format!("--ngram direct is not possible here: {why}")),
        (NgramMode::Mmap, _) => (TablePlace::Mapped, format!("{} rows a token from the mapped file (--ngram mmap)", t.per_token)),
    }
}
