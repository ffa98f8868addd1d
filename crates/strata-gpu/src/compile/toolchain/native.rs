//! The architectures of this machine's cards, by what their drivers tell without being loaded.

use std::fs;
use std::process::Command;

/// As compilers name them, each once. Empty where no driver answers.
pub fn archs() -> Vec<String> {
    let smi = Command::new("nvidia-smi").args(["--query-gpu=compute_cap", "--format=csv,noheader"]).output();
    let mut found: Vec<String> = smi.map(|o| nvidia(&String::from_utf8_lossy(&o.stdout))).unwrap_or_default();
    let nodes = fs::read_dir("/sys/class/kfd/kfd/topology/nodes").into_iter().flatten().flatten();
    found.extend(nodes.filter_map(|n| amd(&fs::read_to_string(n.path().join("properties")).ok()?)));
    found.sort();
    found.dedup();
    found
}

/// The name for a compute capability. Of those in use, only 9.0 has instructions outside the common set (wgmma).
pub fn sm(major: i32, minor: i32) -> String {
    format!("sm_{major}{minor}{}", if (major, minor) == (9, 0) { "a" } else { "" })
}

/// Of lines with a compute capability each (`9.0`).
fn nvidia(lines: &str) -> Vec<String> {
    let arch = |line: &str| {
        let (major, minor) = line.trim().split_once('.')?;
        let (major, minor): (u8, u8) = (major.parse().ok()?, minor.parse().ok()?);
        Some(sm(major.into(), minor.into()))
    };
    lines.lines().filter_map(arch).collect()
}

/// Of the properties of a node: `gfx_target_version` is major * 10,000 + minor * 100 + stepping, 0 for a CPU.
fn amd(properties: &str) -> Option<String> {
    let version = properties.lines().find_map(|l| l.trim().strip_prefix("gfx_target_version")?.trim().parse::<u32>().ok())?;
    (version > 0).then(|| format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_compilers() {
        assert_eq!(nvidia("9.0\n8.6\n 12.0 \n[N/A]\n\nfailed: 1\n"), ["sm_90a", "sm_86", "sm_120"]);
        let node = |v: &str| amd(&format!("cpu_cores_count 0\ngfx_target_version {v}\nvendor_id 4098\n"));
        for (version, name) in [("120001", "gfx1201"), ("110501", "gfx1151"), ("100300", "gfx1030"), ("90010", "gfx90a")] {
            assert_eq!(node(version).as_deref(), Some(name));
        }
        for none in ["0", "x", "-1", "99999999999"] {
            assert_eq!(node(none), None);
        }
        assert_eq!(amd("simd_count 0\n"), None);
    }
}
