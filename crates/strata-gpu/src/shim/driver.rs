//! The shim as a device: memory is the host's, a launch runs to its end before it returns.

use super::{Order, ShimSide};
use crate::driver::{Address, DeviceInfo, Driver, Grid, Handle};
use crate::error::{GpuError, Result};
use libloading::Library;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_char, c_void};
use std::sync::Mutex;
use std::time::Instant;

/// The launch record of `cpu_runtime.cpp`.
#[repr(C)]
struct Launch {
    groups: [u32; 3],
    threads: u32,
    shared: u32,
    cluster: u32,
    order: i32,
    seed: u64,
    workers: u32,
}

/// The entry that `SHIM_EXPORT` makes: null, or an error text from `strdup`.
type Entry = unsafe extern "C" fn(*const Launch, *mut *mut c_void) -> *mut c_char;

unsafe extern "C" {
    /// The C library's.
    fn free(pointer: *mut c_void);
}

#[derive(Default)]
struct State {
    modules: Vec<Library>,
    functions: Vec<(String, Entry)>,
    allocations: HashMap<Address, Layout>,
    events: Vec<Option<Instant>>,
}

pub(super) struct ShimDriver {
    info: DeviceInfo,
    order: Order,
    workers: u32,
    state: Mutex<State>,
}

impl ShimDriver {
    pub(super) fn new(side: ShimSide, order: Order) -> Result<ShimDriver> {
        super::compiler()?;
        #[cfg(target_arch = "x86_64")]
        let able = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let able = false;
        if !able {
            let hint = "the shim switches fibers by x86-64 code and uses FMA and half conversion of AVX2 CPUs".into();
            return Err(GpuError::Missing { what: "an x86-64 CPU with AVX2", tried: std::env::consts::ARCH.into(), hint });
        }
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Ok(ShimDriver {
            info: DeviceInfo {
                name: format!("CPU shim ({})", side.arch()),
                arch: side.arch().into(),
                units: cpus,
                l2_bytes: 1 << 20,
                memory_bytes: 1 << 32,
                shared_bytes: 227 * 1024,
            },
            order,
            workers: cpus,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Driver for ShimDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<Address> {
        let fail = || GpuError::OutOfMemory { bytes, device: self.info.name.clone() };
        // exactly as many bytes as asked for, so that sanitizers see the first byte beyond
        let layout = Layout::from_size_align(bytes.max(1), 256).map_err(|_| fail())?;
        // SAFETY: the layout has a size.
        let p = unsafe { alloc(layout) };
        if p.is_null() {
            return Err(fail());
        }
        self.state().allocations.insert(p as Address, layout);
        Ok(p as Address)
    }

    unsafe fn free(&self, address: Address) {
        if let Some(layout) = self.state().allocations.remove(&address) {
            // SAFETY: it came from `alloc` with this layout and is removed once.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        self.alloc(bytes).map(|a| a as *mut u8)
    }

    unsafe fn free_host(&self, pointer: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.free(pointer as Address) };
    }

    unsafe fn copy_in(&self, to: Address, from: &[u8], _stream: Handle) -> Result<()> {
        // SAFETY: the caller promises room.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: Address, _stream: Handle) -> Result<()> {
        // SAFETY: the caller promises as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, _stream: Handle) -> Result<()> {
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, _stream: Handle) -> Result<()> {
        // SAFETY: the caller promises room.
        unsafe { std::ptr::write_bytes(to as *mut u8, byte, bytes) };
        Ok(())
    }

    fn load_module(&self, image: &[u8]) -> Result<Handle> {
        // SAFETY: the bytes came from an OsString of this process (`shim::image`).
        let path = unsafe { OsString::from_encoded_bytes_unchecked(image.to_vec()) };
        // SAFETY: the object was built from the embedded sources; its initialisers only set up this runtime.
        let library = unsafe { Library::new(&path) }
            .map_err(|e| GpuError::Io { path: path.display().to_string(), source: std::io::Error::other(e) })?;
        let mut state = self.state();
        state.modules.push(library);
        Ok(Handle(state.modules.len() as u64 - 1))
    }

    fn function(&self, module: Handle, name: &str, _shared: u32) -> Result<Handle> {
        let mut state = self.state();
        let library = state
            .modules
            .get(module.0 as usize)
            .ok_or_else(|| GpuError::Kernel { kernel: name.into(), reason: "no such module".into() })?;
        // SAFETY: SHIM_EXPORT gives the function this type; the library lives as long as the driver.
        let entry: Entry = unsafe { library.get::<Entry>(format!("shim_launch_{name}\0").as_bytes()) }
            .map(|s| *s)
            .map_err(|e| GpuError::Kernel { kernel: name.into(), reason: e.to_string() })?;
        state.functions.push((name.to_owned(), entry));
        Ok(Handle(state.functions.len() as u64 - 1))
    }

    unsafe fn launch(&self, function: Handle, grid: Grid, _stream: Handle, args: &mut [*mut c_void]) -> Result<()> {
        let (name, entry) = self
            .state()
            .functions
            .get(function.0 as usize)
            .cloned()
            .ok_or_else(|| GpuError::Kernel { kernel: format!("{function:?}"), reason: "no such function".into() })?;
        let (order, seed) = match self.order {
            Order::Forward => (0, 0),
            Order::Reversed => (1, 0),
            Order::Random(seed) => (2, seed),
        };
        let Grid { groups, threads, shared, cluster } = grid;
        let launch = Launch { groups, threads, shared, cluster, order, seed, workers: self.workers };
        // SAFETY: the caller's promise about the arguments; the entry checks their types against the kernel's.
        let error = unsafe { entry(&launch, args.as_mut_ptr()) };
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: a string from strdup, freed once.
        let reason = unsafe {
            let text = CStr::from_ptr(error).to_string_lossy().into_owned();
            free(error.cast());
            text
        };
        Err(GpuError::Kernel { kernel: name, reason })
    }

    fn stream(&self) -> Result<Handle> {
        Ok(Handle(0))
    }

    fn destroy_stream(&self, _stream: Handle) {}

    fn sync(&self, _stream: Handle) -> Result<()> {
        Ok(())
    }

    fn event(&self) -> Result<Handle> {
        let mut state = self.state();
        state.events.push(None);
        Ok(Handle(state.events.len() as u64 - 1))
    }

    fn destroy_event(&self, _event: Handle) {}

    fn record(&self, event: Handle, _stream: Handle) -> Result<()> {
        if let Some(e) = self.state().events.get_mut(event.0 as usize) {
            *e = Some(Instant::now());
        }
        Ok(())
    }

    fn elapsed(&self, from: Handle, to: Handle) -> Result<f32> {
        let state = self.state();
        let at = |h: Handle| state.events.get(h.0 as usize).copied().flatten();
        match (at(from), at(to)) {
            (Some(a), Some(b)) => Ok(b.duration_since(a).as_secs_f32() * 1e3),
            _ => Err(GpuError::Driver { call: "elapsed", code: 1, name: "an event was not recorded".into() }),
        }
    }

    fn begin_capture(&self, _stream: Handle) -> Result<()> {
        Ok(())
    }

    fn end_capture(&self, _stream: Handle) -> Result<Option<Handle>> {
        Ok(None)
    }

    fn replay(&self, _graph: Handle, _stream: Handle) -> Result<()> {
        Err(GpuError::Driver { call: "replay", code: 1, name: "the shim has no graphs".into() })
    }

    fn destroy_graph(&self, _graph: Handle) {}
}
