//! What only HIP has: devices made current by number, facts from the properties structure.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use libloading::Library;

use super::api::{self, Api, Entry, Vendor, entry};
use super::native::Native;
use super::{DeviceInfo, Driver};
use crate::error::{GpuError, Result};

/// The start of `hipDeviceProp_tR0600` (ROCm 6 and 7; the older structure has another function name), with the fields in use.
#[repr(C)]
struct Properties {
    name: [c_char; 256],
    ids: [u8; 28],
    memory: usize,
    shared: usize,
    skip_1: [u8; 84],
    units: c_int,
    skip_2: [u8; 224],
    l2: c_int,
    skip_3: [u8; 540],
    arch: [c_char; 256],
    skip_4: [u8; 56],
    /// Room for what later releases may append.
    spare: [u8; 1024],
}

const _: () = {
    assert!(std::mem::offset_of!(Properties, shared) == 296);
    assert!(std::mem::offset_of!(Properties, units) == 388);
    assert!(std::mem::offset_of!(Properties, l2) == 616);
    assert!(std::mem::offset_of!(Properties, arch) == 1160);
    assert!(std::mem::offset_of!(Properties, spare) == 1472);
};

/// HIP's own functions and the device.
pub(super) struct Context {
    device: c_int,
    set_device: Entry<unsafe extern "C" fn(c_int) -> c_int>,
}

/// Opens an AMD device.
pub fn open(ordinal: u32) -> Result<Arc<dyn Driver>> {
    let (file, library) = api::open(Vendor::Hip)?;
    let api = Api::load(Vendor::Hip, library, file)?;
    let device = super::native::device(&api, Vendor::Hip, ordinal)?;
    let info = info(&api, library, file, device)?;
    // SAFETY: the type is that of hip_runtime_api.h.
    let set_device = unsafe { entry(library, file, "hipSetDevice")? };
    let context = super::native::Context::Hip(Context { device, set_device });
    Ok(Arc::new(Native::new(api, context, info)))
}

/// Facts about a device.
pub(super) fn info(api: &Api, library: &Library, file: &str, device: c_int) -> Result<DeviceInfo> {
    type Get = unsafe extern "C" fn(*mut Properties, c_int) -> c_int;
    // SAFETY: the type is that of hip_runtime_api.h; `Properties` is at least as large as what is written.
    let get: Entry<Get> = unsafe { entry(library, file, "hipGetDevicePropertiesR0600")? };
    // SAFETY: integers only: all zeros is a value.
    let mut p: Box<Properties> = Box::new(unsafe { std::mem::zeroed() });
    // SAFETY: as above.
    api.check(get.name, unsafe { (get.call)(&mut *p, device) })?;
    let (name, memory_bytes) = super::native::name_and_memory(api, device)?;
    let arch = arch(&super::native::text(&p.arch));
    if !arch.starts_with("gfx") {
        return Err(GpuError::Kernel {
            kernel: "(any)".into(),
            reason: format!("{name} reports the architecture {arch:?}, not one of AMD's"),
        });
    }
    Ok(DeviceInfo { name, arch, units: p.units as u32, l2_bytes: p.l2 as usize, memory_bytes, shared_bytes: p.shared })
}

/// The architecture without its features: `gfx90a:sramecc+:xnack-` is `gfx90a`.
fn arch(full: &str) -> String {
    full.split(':').next().unwrap_or_default().to_string()
}

impl Context {
    /// Makes the device current on this thread.
    pub fn enter(&self, api: &Api) -> Result<()> {
        // SAFETY: takes a number.
        api.check(self.set_device.name, unsafe { (self.set_device.call)(self.device) })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn features_are_cut_off() {
        assert_eq!(super::arch("gfx1201"), "gfx1201");
        assert_eq!(super::arch("gfx90a:sramecc+:xnack-"), "gfx90a");
        assert_eq!(super::arch(""), "");
    }
}
