//! What only CUDA has: primary contexts, attributes, opting in to more shared memory, clusters.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use libloading::Library;

use super::api::{self, Api, Entry, Raw, Vendor, entry};
use super::native::Native;
use super::{DeviceInfo, Driver, Grid};
use crate::compile::toolchain::native::sm;
use crate::error::{GpuError, Result};

/// Device attributes (`CUdevice_attribute`).
const UNITS: c_int = 16;
const L2_BYTES: c_int = 38;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const SHARED_OPT_IN: c_int = 97;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_int = 8;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER_DIMENSION: c_uint = 4;

/// `CUlaunchAttribute`: an identifier and a union of 64 bytes.
#[repr(C)]
struct LaunchAttribute {
    id: c_uint,
    pad: u32,
    cluster: [c_uint; 3],
    rest: [u32; 13],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Raw,
    attributes: *mut LaunchAttribute,
    count: c_uint,
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72 && size_of::<LaunchConfig>() == 56);

type LaunchEx = unsafe extern "C" fn(*const LaunchConfig, Raw, *mut Raw, *mut Raw) -> c_int;

/// CUDA's own functions and the retained primary context.
pub(super) struct Context {
    device: c_int,
    context: Raw,
    set_current: Entry<unsafe extern "C" fn(Raw) -> c_int>,
    release: Entry<unsafe extern "C" fn(c_int) -> c_int>,
    function_attribute: Entry<unsafe extern "C" fn(Raw, c_int, c_int) -> c_int>,
    /// From CUDA 11.8 on.
    launch_ex: Option<Entry<LaunchEx>>,
}

// SAFETY: a context may be made current on any thread; the pointers are handles, never dereferenced here.
unsafe impl Send for Context {}
// SAFETY: as above; the functions are thread-safe by the driver's documentation.
unsafe impl Sync for Context {}

/// Opens an NVIDIA device.
pub fn open(ordinal: u32) -> Result<Arc<dyn Driver>> {
    let (file, library) = api::open(Vendor::Cuda)?;
    let api = Api::load(Vendor::Cuda, library, file)?;
    let device = super::native::device(&api, Vendor::Cuda, ordinal)?;
    let info = info(&api, library, file, device)?;
    let context = Context::new(&api, library, file, device)?;
    Ok(Arc::new(Native::new(api, super::native::Context::Cuda(context), info)))
}

/// Facts about a device, without making a context.
pub(super) fn info(api: &Api, library: &Library, file: &str, device: c_int) -> Result<DeviceInfo> {
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
    // SAFETY: the type is that of cuda.h.
    let get: Entry<Attribute> = unsafe { entry(library, file, "cuDeviceGetAttribute")? };
    let attribute = |which: c_int| {
        let mut value = 0;
        // SAFETY: writes one int.
        api.check(get.name, unsafe { (get.call)(&mut value, which, device) }).map(|()| value)
    };
    let (name, memory_bytes) = super::native::name_and_memory(api, device)?;
    Ok(DeviceInfo {
        name,
        arch: sm(attribute(MAJOR)?, attribute(MINOR)?),
        units: attribute(UNITS)? as u32,
        l2_bytes: attribute(L2_BYTES)? as usize,
        memory_bytes,
        shared_bytes: attribute(SHARED_OPT_IN)? as usize,
    })
}

impl Context {
    fn new(api: &Api, library: &Library, file: &str, device: c_int) -> Result<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the types are those of cuda.h; `retain` writes one handle.
        unsafe {
            let retain: Entry<unsafe extern "C" fn(*mut Raw, c_int) -> c_int> = entry(library, file, "cuDevicePrimaryCtxRetain")?;
            let set_current = entry(library, file, "cuCtxSetCurrent")?;
            let release = entry(library, file, "cuDevicePrimaryCtxRelease_v2")?;
            let function_attribute = entry(library, file, "cuFuncSetAttribute")?;
            let launch_ex = entry(library, file, "cuLaunchKernelEx").ok();
            api.check(retain.name, (retain.call)(&mut context, device))?;
            Ok(Context { device, context, set_current, release, function_attribute, launch_ex })
        }
    }

    /// Makes the context current on this thread.
    pub fn enter(&self, api: &Api) -> Result<()> {
        // SAFETY: the context is retained until drop.
        api.check(self.set_current.name, unsafe { (self.set_current.call)(self.context) })
    }

    /// Allows a function this much dynamic shared memory.
    pub fn allow_shared(&self, api: &Api, function: Raw, shared: u32) -> Result<()> {
        // SAFETY: the function was just taken from a live module.
        let code = unsafe { (self.function_attribute.call)(function, MAX_DYNAMIC_SHARED, shared as c_int) };
        api.check(self.function_attribute.name, code)
    }

    /// A launch in clusters of workgroups.
    ///
    /// # Safety
    /// As [`Driver::launch`].
    pub unsafe fn launch_cluster(&self, api: &Api, function: Raw, grid: Grid, stream: Raw, args: *mut *mut c_void) -> Result<()> {
        let Some(launch) = self.launch_ex else {
            return Err(GpuError::MissingFunction { library: "the CUDA driver".into(), function: "cuLaunchKernelEx" });
        };
        let mut cluster = LaunchAttribute { id: CLUSTER_DIMENSION, pad: 0, cluster: [grid.cluster, 1, 1], rest: [0; 13] };
        let config = LaunchConfig {
            grid: grid.groups,
            block: [grid.threads, 1, 1],
            shared: grid.shared,
            stream,
            attributes: &mut cluster,
            count: 1,
        };
        // SAFETY: the structures are those of cuda.h (sizes checked above) and live during the call; the rest is the caller's.
        api.check(launch.name, unsafe { (launch.call)(&config, function, args, std::ptr::null_mut()) })
    }

    /// Gives the context back; the driver destroys what is left in it when nobody else holds it.
    pub fn release(&self) {
        // SAFETY: retained once in `new`. At process exit the driver may be gone already and returns an error, which says nothing new.
        unsafe { (self.release.call)(self.device) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn architectures() {
        assert_eq!(super::sm(9, 0), "sm_90a");
        assert_eq!(super::sm(7, 5), "sm_75");
        assert_eq!(super::sm(12, 1), "sm_121");
    }
}
