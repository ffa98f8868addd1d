//! What this machine has: memory, limits, huge pages, reads past the page cache.

use crate::facts::Machine;
use crate::rows::{DirectReader, block_size};
use std::fs;
use std::path::Path;

/// Facts of this machine, as far as it tells.
pub fn machine() -> Machine {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| field_kib(&info, name);
    let (mut available, mut available_by) = (field("MemAvailable:").unwrap_or(u64::MAX / 2), "memory available now");
    if let Some(left) = cgroup_left().filter(|l| *l < available) {
        (available, available_by) = (left, "limit of the control group");
    }
    Machine {
        page: page_size(),
        huge_page: huge_page(field("Hugepagesize:")),
        available,
        available_by,
        lock_limit: lock_limit(),
        swap: field("SwapTotal:").unwrap_or(0) > 0,
    }
}

/// A field of /proc/meminfo or /proc/self/status, which count in KiB.
pub(crate) fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of a page.
pub(crate) fn page_size() -> u64 {
    #[cfg(unix)]
    // SAFETY: asks for a number.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    #[cfg(not(unix))]
    let n = 4096;
    u64::try_from(n).unwrap_or(4096).max(512)
}

/// Huge pages are given to who asks for them unless they are switched off.
fn huge_page(size: Option<u64>) -> Option<u64> {
    let state = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    (!state.contains("[never]")).then_some(size?)
}

/// Bytes that this process may lock: no limit with the privilege to.
fn lock_limit() -> u64 {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caps = status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("CapEff:")?.trim(), 16).ok());
    if caps.is_some_and(|c| c >> CAP_IPC_LOCK & 1 == 1) {
        return u64::MAX;
    }
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills the struct that it is given.
        if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0 {
            #[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
            return limit.rlim_cur as u64;
        }
    }
    0
}

/// What the control groups of this process leave it: the least of limit minus anonymous memory on the way up.
fn cgroup_left() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    own.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (controllers, path) = (parts.nth(1)?, parts.next()?);
            let (root, limit, fixed) = match controllers {
                "" if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() => ("/sys/fs/cgroup", "memory.max", ["anon", "unevictable"]),
                c if c.split(',').any(|x| x == "memory") => {
                    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", ["total_rss", "total_unevictable"])
                }
                _ => return None,
            };
            // in a container the group's path may be that of the host: then the mount itself is the group
            let within = format!("{root}{path}");
            let start = if Path::new(&within).join(limit).exists() { within } else { root.to_owned() };
            Path::new(&start).ancestors().take_while(|p| p.starts_with(root)).filter_map(|dir| left_of(dir, limit, fixed)).min()
        })
        .min()
}

fn left_of(dir: &Path, limit: &str, fixed: [&str; 2]) -> Option<u64> {
    let limit: u64 = fs::read_to_string(dir.join(limit)).ok()?.trim().parse().ok()?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| stat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok()).unwrap_or(0);
    // cached file pages make room when asked to
    Some(limit.saturating_sub(fixed.iter().map(|n| of(n)).sum()))
}

/// Whether rows of the file at `path` can be read past the page cache: the block size of such reads, found by doing one at `offset`.
///
/// # Errors
/// Why not.
pub fn probe_direct(path: &Path, offset: u64) -> Result<u64, String> {
    let file = crate::rows::open_direct(path).map_err(|e| format!("O_DIRECT: {e}"))?;
    let block = block_size(&file);
    DirectReader::probe(file, block, offset).map(|()| block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_pages() {
        let m = machine();
        assert!(m.page.is_power_of_two() && m.available > 1 << 20, "{m:?}");
        assert!(m.huge_page.is_none_or(|h| h > m.page && h.is_power_of_two()), "{m:?}");
    }

    #[test]
    fn fields_and_groups() {
        assert_eq!(field_kib("A:  3 kB\nAB: 5 kB\n", "AB:"), Some(5120));
        assert_eq!(field_kib("A:  3 kB\n", "B:"), None);
        let dir = std::env::temp_dir().join(format!("strata-group-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.max"), "1000\n").unwrap();
        fs::write(dir.join("memory.stat"), "anon 300\nanon_thp 50\nfile 600\nunevictable 100\n").unwrap();
        assert_eq!(left_of(&dir, "memory.max", ["anon", "unevictable"]), Some(600));
        fs::write(dir.join("memory.max"), "max\n").unwrap();
        assert_eq!(left_of(&dir, "memory.max", ["anon", "unevictable"]), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
