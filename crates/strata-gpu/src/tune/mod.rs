//! `strata kernels tune`: measures the thresholds of dispatch on a device and keeps them for it. Kernels that are timed against
//! each other are exact: what is found changes times alone.

mod file;
mod measure;

use crate::compile::Cache;
use crate::defaults::{Tables, check};
use crate::device::Device;
use crate::driver::DeviceInfo;
use crate::error::{GpuError, Result};
use std::path::PathBuf;

/// Measures this device, tells what it finds, and writes the table that [`Dispatch::for_device`](crate::defaults::Dispatch)
/// reads. Returns the file. Values that are as good as the base ones are left out.
///
/// # Errors
/// A kernel that does not compile or run, or a file that cannot be written.
pub fn tune(device: &Device, line: &mut dyn FnMut(String)) -> Result<PathBuf> {
    tune_in(&Cache::of_user(), device, line)
}

/// The same with a cache of one's own.
///
/// # Errors
/// As [`tune`].
pub fn tune_in(cache: &Cache, device: &Device, line: &mut dyn FnMut(String)) -> Result<PathBuf> {
    let info = device.info();
    let path = file::path(cache, info).ok_or_else(|| GpuError::Missing {
        what: "a cache directory",
        tried: "STRATA_CACHE, XDG_CACHE_HOME, HOME".into(),
        hint: "set STRATA_CACHE".into(),
    })?;
    let values = measure::measure(device, line)?;
    // what would be refused when it is read must not be written
    let text = file::text(info, &values);
    if let Err(reason) = file::parse(&text, info) {
        return Err(GpuError::Kernel { kernel: "(dispatch table)".into(), reason });
    }
    file::write(&path, &text)?;
    Ok(path)
}

/// What was measured on a device, empty without a file; or why its file cannot be used.
pub(crate) fn load(info: &DeviceInfo) -> std::result::Result<Vec<(String, String)>, String> {
    file::load(&Cache::of_user(), info)
}

/// Refuses values that are no switches or let a kernel in that is not exact.
fn allowed(values: &[(String, String)], arch: &str) -> std::result::Result<(), String> {
    let mut tables = Tables::default();
    if let Some((name, value)) = values.iter().find(|(name, value)| !tables.set(name, value)) {
        return Err(format!("there is no switch {name} that takes {value}"));
    }
    match check::inexact(&tables, arch).as_slice() {
        [] => Ok(()),
        bad => Err(format!("leads to kernels that are not exact: {}", bad.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuned_device_gets_what_was_measured() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let dir = std::env::temp_dir().join(format!("strata-tune-{}", std::process::id()));
        let cache = Cache::at(dir.clone());
        assert_eq!(file::load(&cache, device.info()), Ok(Vec::new()));
        let mut lines = Vec::new();
        let path = tune_in(&cache, &device, &mut |l| lines.push(l)).unwrap();
        let values = file::load(&cache, device.info()).unwrap();
        assert_eq!(lines.iter().filter(|l| l.contains(" = ")).count(), values.len(), "{lines:?}");
        // a damaged file is ignored, and said to be
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("arch", "bark")).unwrap();
        assert!(file::load(&cache, device.info()).unwrap_err().contains("is ignored"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
