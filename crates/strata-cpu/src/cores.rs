//! Which cores the pool's threads stay on, and keeping them there. Linux only; elsewhere the system places them.
//!
//! A thread has a physical core of its own before two share one, and memory of its own node before that of another: the caller's
//! core first, then the physical cores of its node, then those of the other nodes, then the second threads of all in the
//! same order.

/// A core as the system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
struct Core {
    id: usize,
    /// The NUMA node its memory is on.
    node: usize,
    /// The lowest number among the threads of its physical core.
    physical: usize,
}

/// The order in which threads take cores when the caller runs on `here`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn order(cores: &[Core], here: usize) -> Vec<usize> {
    let caller = cores.iter().find(|c| c.id == here).or(cores.first()).copied();
    let Some(caller) = caller else { return Vec::new() };
    // how many threads of its physical core come before a core: the caller is always the first of its own
    let place = |c: &Core| {
        let before = |o: &&Core| o.physical == c.physical && (o.id == caller.id || (o.id < c.id && c.id != caller.id));
        if c.id == caller.id { 0 } else { cores.iter().filter(before).filter(|o| o.id != c.id).count() }
    };
    let mut by_place: Vec<_> = cores
        .iter()
        // numbers go round from the caller's, so that two programs on one machine do not both begin at core 0
        .map(|c| (place(c), c.node != caller.node, c.node, c.id != caller.id, c.id < caller.id, c.id))
        .collect();
    by_place.sort_unstable();
    by_place.into_iter().map(|key| key.5).collect()
}

/// The cores this thread may run on, best first, beginning with the one it runs on now; empty if the system does not say.
#[cfg(target_os = "linux")]
pub fn cores_from_here() -> Vec<usize> {
    // SAFETY: a set of cores is plain bits, and the size given is its own.
    let (set, here) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (set, libc::sched_getcpu())
    };
    // SAFETY: every number is below the size of the set.
    let allowed = (0..libc::CPU_SETSIZE as usize).filter(|c| unsafe { libc::CPU_ISSET(*c, &set) });
    let cores: Vec<Core> = allowed.map(|id| Core { id, node: node_of(id), physical: physical_of(id) }).collect();
    order(&cores, usize::try_from(here).unwrap_or(usize::MAX))
}

#[cfg(not(target_os = "linux"))]
pub fn cores_from_here() -> Vec<usize> {
    Vec::new()
}

/// The NUMA node of a core; 0 where the system has none.
#[cfg(target_os = "linux")]
fn node_of(core: usize) -> usize {
    let Ok(entries) = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")) else { return 0 };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    names.filter_map(|n| n.strip_prefix("node")?.parse().ok()).next().unwrap_or(0)
}

/// The lowest number among the threads of a core's physical core; its own where the system does not say.
#[cfg(target_os = "linux")]
fn physical_of(core: usize) -> usize {
    let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"));
    list.ok().and_then(|l| lowest(&l)).unwrap_or(core)
}

/// The first number of a list such as `3,67` or `0-1`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn lowest(list: &str) -> Option<usize> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

/// Keeps this thread on one core; a system that refuses leaves it where it is.
#[cfg(target_os = "linux")]
pub fn stay_on(core: usize) {
    if core >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: `core` is below the size of the set; the size given is the set's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn stay_on(_core: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two physical cores with two threads each, numbered as Linux does: second threads last.
    fn two_nodes() -> Vec<Core> {
        (0..8).map(|id| Core { id, node: id / 2 % 2, physical: id % 4 }).collect()
    }

    #[test]
    fn physical_cores_of_the_callers_node_come_first() {
        assert_eq!(order(&two_nodes(), 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order(&two_nodes(), 2), [2, 3, 0, 1, 6, 7, 4, 5]);
        // from core 3, the other of its node is 2
        assert_eq!(order(&two_nodes(), 3), [3, 2, 0, 1, 6, 7, 4, 5]);
    }

    #[test]
    fn a_second_thread_of_a_core_can_be_the_caller() {
        // core 5 shares the physical core 1: core 1 is then the second
        assert_eq!(order(&two_nodes(), 5), [5, 0, 2, 3, 1, 4, 6, 7]);
    }

    #[test]
    fn every_core_comes_once_whatever_is_allowed() {
        let mut some = two_nodes();
        some.retain(|c| [1, 3, 5, 6].contains(&c.id));
        for here in [1, 6, 99] {
            let mut found = order(&some, here);
            assert_eq!(found[0], if here == 99 { 1 } else { here });
            found.sort_unstable();
            assert_eq!(found, [1, 3, 5, 6]);
        }
        assert!(order(&[], 0).is_empty());
    }

    #[test]
    fn lists_of_siblings() {
        assert_eq!((lowest("3,67\n"), lowest("0-1"), lowest("12"), lowest("")), (Some(3), Some(0), Some(12), None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_cores() {
        assert!(!cores_from_here().is_empty());
    }
}
