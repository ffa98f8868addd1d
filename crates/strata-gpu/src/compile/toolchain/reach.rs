//! Which sources a kernel file includes.

use crate::error::{GpuError, Result};
use crate::sources;

/// Path below `kernels/` and text.
pub type Source = (&'static str, &'static str);

/// The file and everything it includes, directly or not, in order of path. Paths in `#include "..."` count from `kernels/`.
/// Names that are not among the sources (headers of the side that compiles on the CPU) are left to the compiler.
pub fn reachable(file: &str) -> Result<Vec<Source>> {
    let find = |path: &str| sources::all().iter().find(|(p, _)| *p == path).copied();
    let first = find(file).ok_or_else(|| GpuError::Kernel { kernel: file.to_string(), reason: "there is no such source file".into() })?;
    let mut found: Vec<Source> = vec![first];
    let mut next = 0;
    while let Some((_, text)) = found.get(next).copied() {
        for source in text.lines().filter_map(included).filter_map(find) {
            if !found.contains(&source) {
                found.push(source);
            }
        }
        next += 1;
    }
    found.sort_unstable_by_key(|(path, _)| *path);
    Ok(found)
}

/// The path of an `#include "..."` line.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn include_lines() {
        assert_eq!(included("#include \"side/side.cuh\""), Some("side/side.cuh"));
        assert_eq!(included("  #  include \"a.cuh\" // why"), Some("a.cuh"));
        assert_eq!(included("#include <stddef.h>"), None);
        assert_eq!(included("// #include \"a.cuh\""), None);
        assert_eq!(included("#include \"a.cuh"), None);
    }

    #[test]
    fn missing_files_are_errors() {
        assert!(matches!(reachable("no/such.cu"), Err(GpuError::Kernel { .. })));
    }
}
