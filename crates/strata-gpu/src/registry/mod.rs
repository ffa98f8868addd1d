//! Every kernel: its file, its arguments, what it needs. One table a family; loader, audit and CI read the same tables.

mod attention;
mod gemm;
mod products;
mod selection;
mod tests;

/// What a kernel needs from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any device.
    Any,
    /// NVIDIA from this compute capability on (75, 80, 86, 89, 90, ...).
    Cuda(u32),
    /// AMD.
    Hip,
    /// NVIDIA from this capability on, or AMD with matrix instructions (gfx11, gfx12).
    Matrix(u32),
    /// The CPU shim alone: what a kernel must not do.
    Shim,
}

/// One kernel entry point.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its symbol.
    pub name: &'static str,
    /// Its file below `kernels/`.
    pub file: &'static str,
    /// One letter an argument: `p` pointer, `i` i32, `u` u32, `l` i64, `f` f32.
    pub args: &'static str,
    /// Threads of a workgroup.
    pub threads: u32,
    pub needs: Needs,
    /// Whether its results are the definition's to the bit. Defaults contain exact kernels only.
    pub exact: bool,
}

/// A kernel that runs on any device and is exact.
pub const fn kernel(name: &'static str, file: &'static str, args: &'static str, threads: u32) -> Kernel {
    Kernel { name, file, args, threads, needs: Needs::Any, exact: true }
}

impl Kernel {
    /// The same kernel with other needs.
    pub const fn needs(self, needs: Needs) -> Kernel {
        Kernel { needs, ..self }
    }

    /// The same kernel, marked as not exact.
    pub const fn inexact(self) -> Kernel {
        Kernel { exact: false, ..self }
    }

    /// Whether an architecture (`sm_90a`, `gfx1201`, `shim-cuda`, `shim-gfx12`) can run it.
    pub fn runs_on(&self, arch: &str) -> bool {
        let sm = if arch == "shim-cuda" {
            Some(90)
        } else {
            arch.strip_prefix("sm_").and_then(|s| s.trim_end_matches(char::is_alphabetic).parse::<u32>().ok())
        };
        let gfx = arch.strip_prefix("shim-").unwrap_or(arch);
        match self.needs {
            Needs::Any => true,
            Needs::Cuda(min) => sm.is_some_and(|sm| sm >= min),
            Needs::Shim => arch.starts_with("shim-"),
            Needs::Hip => gfx.starts_with("gfx"),
            Needs::Matrix(min) => sm.is_some_and(|sm| sm >= min) || gfx.starts_with("gfx11") || gfx.starts_with("gfx12"),
        }
    }
}

/// Every kernel of every family.
pub fn all() -> impl Iterator<Item = &'static Kernel> {
    [selection::KERNELS, attention::KERNELS, products::KERNELS, gemm::KERNELS, tests::KERNELS].into_iter().flatten()
}

/// The kernel of this name.
pub fn find(name: &str) -> Option<&'static Kernel> {
    all().find(|k| k.name == name)
}

/// Whether there is a kernel of this name that runs on an architecture.
pub fn has(arch: &str, kernel: &str) -> bool {
    find(kernel).is_some_and(|k| k.runs_on(arch))
}

/// The kernel files, each once, in order of first mention.
pub fn files() -> Vec<&'static str> {
    let mut files = Vec::new();
    for k in all() {
        if !files.contains(&k.file) {
            files.push(k.file);
        }
    }
    files
}

#[cfg(test)]
mod unit {
    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = super::all().map(|k| k.name).collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
    }
}
