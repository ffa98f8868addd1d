//! Images of kernel files: embedded at build time, kept in the disk cache, or compiled now.
//!
//! `build.rs` shares [`toolchain`] and embeds what `STRATA_EMBED_ARCHS` names (see there).

mod embedded;
pub(crate) mod toolchain;

pub use embedded::embedded;
pub use toolchain::{
    COMMON, Cache, Image, Vendor, clang_version, compiler, image, image_in, llvm_tool, nvrtc_path, nvrtc_version, sm_number, supports,
};

use crate::error::{GpuError, Result};

/// Architecture of the PTX that NVIDIA's driver compiles itself when there is nothing better.
pub const LAST_RESORT: &str = "compute_75";

/// The image of a kernel file for a device: embedded for this architecture, else from the disk cache or compiled now, else
/// embedded for an architecture whose images run on it, else PTX for the driver. [`Image::arch`] says which it was: what kernels
/// an image holds depends on that. The error lists what is missing.
pub fn load(file: &str, arch: &str) -> Result<Image> {
    if let Some(image) = embedded(file, arch) {
        return image;
    }
    let error = match image(file, arch, &[]) {
        Err(error @ (GpuError::Missing { .. } | GpuError::Compile { .. })) => error,
        done => return done,
    };
    let found = stand_ins(arch).iter().find_map(|other| embedded(file, other));
    found.unwrap_or_else(|| {
        Err(match error {
            GpuError::Missing { what, tried, hint } => {
                let hint = format!("{hint}; this build embeds no image of {file} that runs on {arch}");
                GpuError::Missing { what, tried, hint }
            }
            other => other,
        })
    })
}

/// Other architectures whose images run on this one, best first.
fn stand_ins(arch: &str) -> Vec<String> {
    if let Some(number) = toolchain::sm_number(arch) {
        let (major, minor) = (number / 10, number % 10);
        let mut list: Vec<String> = (0..minor).rev().map(|m| format!("sm_{major}{m}")).collect();
        if number >= 75 {
            list.push(LAST_RESORT.into());
        }
        return list;
    }
    match arch {
        "gfx1100" | "gfx1101" | "gfx1102" | "gfx1103" | "gfx1150" | "gfx1151" | "gfx1152" | "gfx1153" => vec!["gfx11-generic".into()],
        "gfx1200" | "gfx1201" => vec!["gfx12-generic".into()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn stand_ins_run_on_the_device() {
        assert_eq!(stand_ins("sm_87"), ["sm_86", "sm_85", "sm_84", "sm_83", "sm_82", "sm_81", "sm_80", "compute_75"]);
        assert_eq!(stand_ins("sm_90a"), ["compute_75"]);
        assert_eq!(stand_ins("gfx1101"), ["gfx11-generic"]);
        assert!(stand_ins("gfx90a").is_empty());
    }

    #[test]
    fn an_unknown_architecture_is_an_error() {
        for arch in ["", "sm_", "sm_x", "gfx", "riscv", "gfx1201; ls"] {
            let file = "tests/probe.cu";
            assert!(matches!(load(file, arch), Err(GpuError::Compile { .. } | GpuError::Missing { .. })), "{arch}");
        }
    }

    /// The test kernels compile for every architecture whose compiler is here. `strata kernels audit` compiles all.
    #[test]
    fn test_kernels_compile() {
        let mut files = registry::files();
        files.retain(|f| f.starts_with("tests/"));
        files.push("tests/probe.cu");
        for arch in COMMON.iter().chain(&[LAST_RESORT]) {
            if let Err(error) = compiler(arch) {
                assert!(matches!(error, GpuError::Missing { .. }));
                eprintln!("{arch}: skipped, {error}");
                continue;
            }
            if !toolchain::supports(arch) {
                eprintln!("{arch}: skipped, {} does not know it", compiler(arch).unwrap_or_default());
                continue;
            }
            for file in &files {
                let image = image(file, arch, &[]).unwrap_or_else(|e| panic!("{e}"));
                let elf = image.bytes.starts_with(b"\x7fELF");
                assert!(elf || arch.starts_with("compute_"), "{file} for {arch}");
            }
        }
    }

    /// The compiler's message names file and line.
    #[test]
    fn a_compile_error_says_where() {
        for arch in ["sm_80", "gfx1201"] {
            match image("tests/probe.cu", arch, &["STRATA_PROBE_BREAKS=1"]) {
                Err(GpuError::Compile { log, .. }) => assert!(log.contains("probe.cu") && log.contains("broken on purpose"), "{log}"),
                Err(GpuError::Missing { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
