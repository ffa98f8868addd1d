//! What this process takes and has read, as the system counts it.

use crate::machine::field_kib;
use std::fs;

/// A moment's counts, in bytes but for the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Anonymous memory (RssAnon).
    pub anonymous: u64,
    /// File pages mapped and in memory (RssFile).
    pub file: u64,
    /// Locked memory (VmLck).
    pub locked: u64,
    /// Read from storage so far.
    pub read: u64,
    /// Page faults that waited for storage so far.
    pub major_faults: u64,
}

/// The counts now; zeros where the system does not tell.
pub fn usage() -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let field = |name: &str| field_kib(&status, name).unwrap_or(0);
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    Usage {
        anonymous: field("RssAnon:"),
        file: field("RssFile:"),
        locked: field("VmLck:"),
        read: io.lines().find_map(|l| l.strip_prefix("read_bytes: ")?.parse().ok()).unwrap_or(0),
        // field 12 of the line, the tenth after the name
        major_faults: after_name.split_whitespace().nth(9).and_then(|x| x.parse().ok()).unwrap_or(0),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_counted() {
        let before = usage();
        // other tests come and go meanwhile: half of it must show
        let v = std::hint::black_box(vec![1u8; 256 << 20]);
        let after = usage();
        assert!(before.anonymous > 0 && after.anonymous >= before.anonymous + (128 << 20), "{before:?} {after:?}");
        assert_eq!(v.len(), 256 << 20);
    }
}
