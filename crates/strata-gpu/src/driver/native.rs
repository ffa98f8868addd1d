//! A device behind a vendor's driver.

use std::ffi::{CString, c_char, c_int, c_void};

use super::api::{Api, Raw, Vendor, call};
use super::{Address, DeviceInfo, Driver, Grid, Handle, cuda, hip};
use crate::error::{GpuError, Result};

/// Both vendors' code for "no memory left" and for "there is no device".
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
/// `*_STREAM_NON_BLOCKING`: no implicit order with the default stream.
const NON_BLOCKING: u32 = 1;
/// Page-locked memory that every context sees.
const PORTABLE: u32 = 1;
/// Capture: calls of other threads stay allowed.
const CAPTURE_THREAD_LOCAL: u32 = 1;
/// Dynamic shared memory that needs no opting in on NVIDIA.
const SHARED_WITHOUT_OPT_IN: u32 = 48 * 1024;

/// What the vendors do differently.
pub(super) enum Context {
    Cuda(cuda::Context),
    Hip(hip::Context),
}

/// A device of either vendor.
pub(super) struct Native {
    api: Api,
    context: Context,
    info: DeviceInfo,
}

fn handle(raw: Raw) -> Handle {
    Handle(raw as u64)
}

fn raw(handle: Handle) -> Raw {
    handle.0 as Raw
}

/// A C string in a fixed buffer.
pub(super) fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Initialises the driver and counts the devices.
pub(super) fn count(api: &Api) -> Result<c_int> {
    let mut count = 0;
    // SAFETY: no arguments but a flag word; one int is written.
    let result = unsafe { call!(api, init(0)).and_then(|()| call!(api, device_count(&mut count))) };
    match result {
        Err(GpuError::Driver { code: NO_DEVICE, .. }) => Ok(0),
        other => other.map(|()| count),
    }
}

/// The driver's device of an ordinal.
pub(super) fn device(api: &Api, vendor: Vendor, ordinal: u32) -> Result<c_int> {
    let count = count(api)?;
    if i64::from(ordinal) >= i64::from(count) {
        let (what, variable) = match vendor {
            Vendor::Cuda => ("an NVIDIA GPU", "CUDA_VISIBLE_DEVICES"),
            Vendor::Hip => ("an AMD GPU", "HIP_VISIBLE_DEVICES"),
        };
        let tried = format!("device {ordinal} of {count}");
        return Err(GpuError::Missing { what, tried, hint: format!("the driver is there; does {variable} hide it?") });
    }
    let mut device = 0;
    // SAFETY: writes one int.
    unsafe { call!(api, device(&mut device, ordinal as c_int))? };
    Ok(device)
}

pub(super) fn name_and_memory(api: &Api, device: c_int) -> Result<(String, usize)> {
    let mut name = [0 as c_char; 256];
    let mut bytes = 0;
    // SAFETY: both write what they are given room for.
    unsafe {
        call!(api, device_name(name.as_mut_ptr(), name.len() as c_int, device))?;
        call!(api, device_memory(&mut bytes, device))?;
    }
    Ok((text(&name), bytes))
}

impl Native {
    pub fn new(api: Api, context: Context, info: DeviceInfo) -> Native {
        Native { api, context, info }
    }

    /// The table of functions, with the device made current on this thread.
    fn api(&self) -> Result<&Api> {
        match &self.context {
            Context::Cuda(c) => c.enter(&self.api)?,
            Context::Hip(c) => c.enter(&self.api)?,
        }
        Ok(&self.api)
    }

    fn out_of_memory(&self, error: GpuError, bytes: usize) -> GpuError {
        match error {
            GpuError::Driver { code: OUT_OF_MEMORY, .. } => GpuError::OutOfMemory { bytes, device: self.info.name.clone() },
            other => other,
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Context::Cuda(c) = &self.context {
            c.release();
        }
    }
}

impl Driver for Native {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<Address> {
        let api = self.api()?;
        let mut address = 0;
        // SAFETY: writes one address. Drivers refuse zero bytes.
        unsafe { call!(api, alloc(&mut address, bytes.max(1))) }.map_err(|e| self.out_of_memory(e, bytes))?;
        Ok(address)
    }

    unsafe fn free(&self, address: Address) {
        if let Ok(api) = self.api() {
            // SAFETY: the caller's. An error here is an older asynchronous one, which the next call reports too.
            unsafe { (api.free.call)(address) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        let api = self.api()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        unsafe { call!(api, alloc_host(&mut pointer, bytes.max(1), PORTABLE)) }.map_err(|e| self.out_of_memory(e, bytes))?;
        Ok(pointer)
    }

    unsafe fn free_host(&self, pointer: *mut u8) {
        if let Ok(api) = self.api() {
            // SAFETY: the caller's.
            unsafe { (api.free_host.call)(pointer) };
        }
    }

    unsafe fn copy_in(&self, to: Address, from: &[u8], stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's.
        if from.is_empty() { Ok(()) } else { unsafe { call!(api, copy_in(to, from.as_ptr(), from.len(), raw(stream))) } }
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: Address, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's.
        if to.is_empty() { Ok(()) } else { unsafe { call!(api, copy_out(to.as_mut_ptr(), from, to.len(), raw(stream))) } }
    }

    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's.
        if bytes == 0 { Ok(()) } else { unsafe { call!(api, copy(to, from, bytes, raw(stream))) } }
    }

    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: the caller's.
        if bytes == 0 { Ok(()) } else { unsafe { call!(api, fill(to, byte, bytes, raw(stream))) } }
    }

    fn load_module(&self, image: &[u8]) -> Result<Handle> {
        let api = self.api()?;
        let mut module = std::ptr::null_mut();
        // The driver takes no length: images are ELF files, which state theirs, or PTX, which ends with a zero.
        let mut image = image.to_vec();
        image.push(0);
        // SAFETY: writes one handle; the image is read during the call only.
        unsafe { call!(api, load_module(&mut module, image.as_ptr().cast()))? };
        Ok(handle(module))
    }

    fn function(&self, module: Handle, name: &str, shared: u32) -> Result<Handle> {
        let kernel = |reason: String| GpuError::Kernel { kernel: name.to_string(), reason };
        if shared as usize > self.info.shared_bytes {
            return Err(kernel(format!("wants {shared} bytes of shared memory, {} has {}", self.info.name, self.info.shared_bytes)));
        }
        let symbol = CString::new(name).map_err(|_| kernel("its name holds a zero byte".into()))?;
        let api = self.api()?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is a live one of this driver; writes one handle.
        unsafe { call!(api, function(&mut function, raw(module), symbol.as_ptr())) }
            .map_err(|e| kernel(format!("is not in its module ({e})")))?;
        if let Context::Cuda(c) = &self.context
            && shared > SHARED_WITHOUT_OPT_IN
        {
            c.allow_shared(api, function, shared)?;
        }
        Ok(handle(function))
    }

    unsafe fn launch(&self, function: Handle, grid: Grid, stream: Handle, args: &mut [*mut c_void]) -> Result<()> {
        let api = self.api()?;
        let (function, stream) = (raw(function), raw(stream));
        if grid.cluster > 1 {
            return match &self.context {
                // SAFETY: the caller's.
                Context::Cuda(c) => unsafe { c.launch_cluster(api, function, grid, stream, args.as_mut_ptr()) },
                Context::Hip(_) => Err(GpuError::Launch {
                    kernel: "(cluster)".into(),
                    expected: "no clusters on AMD".into(),
                    found: format!("clusters of {}", grid.cluster),
                }),
            };
        }
        let [x, y, z] = grid.groups;
        let none = std::ptr::null_mut();
        // SAFETY: the caller's.
        unsafe { call!(api, launch(function, x, y, z, grid.threads, 1, 1, grid.shared, stream, args.as_mut_ptr(), none)) }
    }

    fn stream(&self) -> Result<Handle> {
        let api = self.api()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { call!(api, stream(&mut stream, NON_BLOCKING))? };
        Ok(handle(stream))
    }

    fn destroy_stream(&self, stream: Handle) {
        if let Ok(api) = self.api() {
            // SAFETY: a live stream of this driver; work on it is finished first by the driver.
            unsafe { (api.destroy_stream.call)(raw(stream)) };
        }
    }

    fn sync(&self, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: a live stream of this driver.
        unsafe { call!(api, sync(raw(stream))) }
    }

    fn event(&self) -> Result<Handle> {
        let api = self.api()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { call!(api, event(&mut event, 0))? };
        Ok(handle(event))
    }

    fn destroy_event(&self, event: Handle) {
        if let Ok(api) = self.api() {
            // SAFETY: a live event of this driver.
            unsafe { (api.destroy_event.call)(raw(event)) };
        }
    }

    fn record(&self, event: Handle, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: live ones of this driver.
        unsafe { call!(api, record(raw(event), raw(stream))) }
    }

    fn elapsed(&self, from: Handle, to: Handle) -> Result<f32> {
        let api = self.api()?;
        let mut milliseconds = 0.0;
        // SAFETY: live events of this driver; writes one float.
        unsafe {
            call!(api, sync_event(raw(to)))?;
            call!(api, elapsed(&mut milliseconds, raw(from), raw(to)))?;
        }
        Ok(milliseconds)
    }

    fn begin_capture(&self, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: a live stream of this driver.
        unsafe { call!(api, begin_capture(raw(stream), CAPTURE_THREAD_LOCAL)) }
    }

    fn end_capture(&self, stream: Handle) -> Result<Option<Handle>> {
        let api = self.api()?;
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live stream of this driver; each writes one handle. The executable graph does not refer to the other.
        unsafe {
            call!(api, end_capture(raw(stream), &mut graph))?;
            let result = call!(api, instantiate(&mut executable, graph, 0));
            (api.destroy_graph.call)(graph);
            result?;
        }
        Ok(Some(handle(executable)))
    }

    fn replay(&self, graph: Handle, stream: Handle) -> Result<()> {
        let api = self.api()?;
        // SAFETY: live ones of this driver.
        unsafe { call!(api, replay(raw(graph), raw(stream))) }
    }

    fn destroy_graph(&self, graph: Handle) {
        if let Ok(api) = self.api() {
            // SAFETY: a live graph of this driver.
            unsafe { (api.destroy_executable.call)(raw(graph)) };
        }
    }
}
