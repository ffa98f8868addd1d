//! What of drivers and compilers is on this machine.

use super::api::{self, Api, Vendor, call};
use super::{DeviceInfo, cuda, hip, native};
use crate::compile;
use crate::error::Result;

/// One thing looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub what: &'static str,
    pub found: bool,
    /// Version and place, or what was tried and how to get it.
    pub detail: String,
    /// The devices of a driver.
    pub devices: Vec<DeviceInfo>,
}

/// Looks for drivers, their devices, and compilers.
pub fn probe() -> Vec<Probe> {
    let entry = |what, result: Result<(String, Vec<DeviceInfo>)>| match result {
        Ok((detail, devices)) => Probe { what, found: true, detail, devices },
        Err(error) => Probe { what, found: false, detail: error.to_string(), devices: Vec::new() },
    };
    let tool = |version: Result<String>| version.map(|v| (v, Vec::new()));
    vec![
        entry("CUDA driver", driver(Vendor::Cuda)),
        entry("HIP driver", driver(Vendor::Hip)),
        entry("NVRTC", tool(compile::nvrtc_version())),
        entry("clang", tool(compile::clang_version())),
    ]
}

/// File, version and devices of a driver.
fn driver(vendor: Vendor) -> Result<(String, Vec<DeviceInfo>)> {
    let (file, library) = api::open(vendor)?;
    let api = Api::load(vendor, library, file)?;
    let count = native::count(&api)?;
    let mut version = 0;
    // SAFETY: writes one int.
    unsafe { call!(api, version(&mut version))? };
    let version = match vendor {
        Vendor::Cuda => format!("{}.{}", version / 1000, version % 1000 / 10),
        Vendor::Hip => format!("{}.{}", version / 10_000_000, version / 100_000 % 100),
    };
    let mut detail = format!("{file}, version {version}, devices: {count}");
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let device = native::device(&api, vendor, ordinal as u32)?;
        let info = match vendor {
            Vendor::Cuda => cuda::info(&api, library, file, device)?,
            Vendor::Hip => hip::info(&api, library, file, device)?,
        };
        detail += &format!("; {ordinal}: {} ({}, {} units, {} MiB)", info.name, info.arch, info.units, info.memory_bytes >> 20);
        devices.push(info);
    }
    Ok((detail, devices))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::GpuError;

    #[test]
    fn every_thing_is_reported_and_nothing_panics() {
        let all = probe();
        assert_eq!(all.iter().map(|p| p.what).collect::<Vec<_>>(), ["CUDA driver", "HIP driver", "NVRTC", "clang"]);
        assert!(all.iter().all(|p| !p.detail.is_empty()));
    }

    #[test]
    fn a_missing_driver_or_device_is_an_error() {
        // Ordinal u32::MAX exists nowhere: with a driver the device is missing, without one the library is.
        for result in [cuda::open(u32::MAX), hip::open(u32::MAX)] {
            let error = result.err().expect("there is no such device");
            assert!(matches!(error, GpuError::Missing { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("was not found (tried "), "{text}");
        }
    }
}
