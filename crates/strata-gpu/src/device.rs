//! A device, safely: typed buffers, kernels by name, launches with checked arguments.

use crate::compile;
use crate::driver::{Address, DeviceInfo, Driver, Grid, Handle};
use crate::error::{GpuError, Result};
use crate::registry::{self, Kernel};
use crate::shim::{self, ShimSide};
use bytemuck::Pod;
use std::collections::HashMap;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    Pointer(Address),
    I32(i32),
    U32(u32),
    I64(i64),
    F32(f32),
}

impl Arg {
    /// Its letter in the registry.
    fn letter(&self) -> char {
        match self {
            Arg::Pointer(_) => 'p',
            Arg::I32(_) => 'i',
            Arg::U32(_) => 'u',
            Arg::I64(_) => 'l',
            Arg::F32(_) => 'f',
        }
    }

    fn pointer(&mut self) -> *mut c_void {
        match self {
            Arg::Pointer(v) => std::ptr::from_mut(v).cast(),
            Arg::I32(v) => std::ptr::from_mut(v).cast(),
            Arg::U32(v) => std::ptr::from_mut(v).cast(),
            Arg::I64(v) => std::ptr::from_mut(v).cast(),
            Arg::F32(v) => std::ptr::from_mut(v).cast(),
        }
    }
}

impl From<i32> for Arg {
    fn from(v: i32) -> Arg {
        Arg::I32(v)
    }
}

impl From<u32> for Arg {
    fn from(v: u32) -> Arg {
        Arg::U32(v)
    }
}

impl From<i64> for Arg {
    fn from(v: i64) -> Arg {
        Arg::I64(v)
    }
}

impl From<f32> for Arg {
    fn from(v: f32) -> Arg {
        Arg::F32(v)
    }
}

/// What [`Device::with_defines`] copies share.
struct Shared {
    driver: Arc<dyn Driver>,
    stream: Handle,
    modules: Mutex<HashMap<(&'static str, String), Handle>>,
    functions: Mutex<HashMap<(&'static str, String), Handle>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.destroy_stream(self.stream);
    }
}

/// A device with one stream: everything asked of it happens in order.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
    defines: Vec<String>,
}

impl Device {
    /// A device by the name of its backend: `cuda`, `hip` (the first card), or `shim-cuda`, `shim-gfx12`, `shim-gfx11`.
    ///
    /// # Errors
    /// An unknown name, or a driver, card or compiler that is not there.
    pub fn open(backend: &str) -> Result<Device> {
        if let Some(side) = ShimSide::ALL.into_iter().find(|s| s.arch() == backend) {
            return Device::new(shim::open(side)?);
        }
        match backend {
            "cuda" => Device::new(crate::driver::cuda::open(0)?),
            "hip" => Device::new(crate::driver::hip::open(0)?),
            _ => Err(GpuError::Missing {
                what: "a backend of this name",
                tried: backend.into(),
                hint: "backends are cuda, hip, shim-cuda, shim-gfx12 and shim-gfx11".into(),
            }),
        }
    }

    /// A device over a driver.
    ///
    /// # Errors
    /// The driver refuses a stream.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Device> {
        let stream = driver.stream()?;
        let shared = Shared { driver, stream, modules: Mutex::default(), functions: Mutex::default() };
        Ok(Device { shared: Arc::new(shared), defines: Vec::new() })
    }

    /// The same device, its kernels compiled with these macros (`NAME` or `NAME=value`).
    #[must_use]
    pub fn with_defines(&self, defines: &[&str]) -> Device {
        Device { shared: self.shared.clone(), defines: defines.iter().map(|d| (*d).to_owned()).collect() }
    }

    /// Facts about it.
    pub fn info(&self) -> &DeviceInfo {
        self.shared.driver.info()
    }

    /// Whether this is the CPU shim.
    pub fn is_shim(&self) -> bool {
        self.info().arch.starts_with("shim-")
    }

    /// Whether a kernel of the registry can run here.
    pub fn has(&self, kernel: &str) -> bool {
        registry::has(&self.info().arch, kernel)
    }

    /// Memory for `n` values; contents are undefined.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn alloc<T: Pod>(&self, n: usize) -> Result<Buffer<T>> {
        let bytes =
            n.checked_mul(size_of::<T>()).ok_or_else(|| GpuError::OutOfMemory { bytes: usize::MAX, device: self.info().name.clone() })?;
        let address = self.shared.driver.alloc(bytes)?;
        Ok(Buffer { device: self.clone(), address, len: n, kind: PhantomData })
    }

    /// Memory with a copy of `values`.
    ///
    /// # Errors
    /// Not enough memory, or the copy fails.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// Waits for everything asked of the device.
    ///
    /// # Errors
    /// Whatever went wrong since the last call.
    pub fn sync(&self) -> Result<()> {
        self.shared.driver.sync(self.shared.stream)
    }

    /// Starts a kernel of the registry. Buffers among the arguments must be large enough for what the kernel reads and writes.
    ///
    /// # Errors
    /// No such kernel here, other argument types than its own, another number of threads, or a driver's error.
    pub fn launch(&self, name: &str, grid: Grid, args: &[Arg]) -> Result<()> {
        let kernel = registry::find(name).ok_or_else(|| GpuError::Kernel { kernel: name.into(), reason: "not in the registry".into() })?;
        let letters: String = args.iter().map(Arg::letter).collect();
        let wrong = |expected: String, found: String| Err(GpuError::Launch { kernel: name.into(), expected, found });
        if letters != kernel.args {
            return wrong(format!("arguments {}", kernel.args), letters);
        }
        if grid.threads != kernel.threads {
            return wrong(format!("{} threads", kernel.threads), grid.threads.to_string());
        }
        if grid.groups.contains(&0) {
            return Ok(());
        }
        let function = self.function(kernel, grid.shared)?;
        let mut values = args.to_vec();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(Arg::pointer).collect();
        // SAFETY: the types are those of the kernel (checked above, and by the shim against the source); addresses come
        // from live buffers, whose sizes are the launcher's duty.
        unsafe { self.shared.driver.launch(function, grid, self.shared.stream, &mut pointers) }
    }

    /// The function handle of a kernel, loading its module if need be.
    fn function(&self, kernel: &'static Kernel, shared: u32) -> Result<Handle> {
        let defines = self.defines.join(" ");
        let key = (kernel.name, format!("{defines}|{}", if shared > 48 * 1024 { shared } else { 0 }));
        let mut functions = self.shared.functions.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(f) = functions.get(&key) {
            return Ok(*f);
        }
        let arch = &self.info().arch;
        if !kernel.runs_on(arch) {
            return Err(GpuError::Kernel { kernel: kernel.name.into(), reason: format!("needs {:?}, this is {arch}", kernel.needs) });
        }
        let mut modules = self.shared.modules.lock().unwrap_or_else(|e| e.into_inner());
        let module = match modules.get(&(kernel.file, defines.clone())) {
            Some(m) => *m,
            None => {
                let image = self.image(kernel.file)?;
                let m = self.shared.driver.load_module(&image)?;
                modules.insert((kernel.file, defines), m);
                m
            }
        };
        let function = self.shared.driver.function(module, kernel.name, shared)?;
        functions.insert(key, function);
        Ok(function)
    }

    fn image(&self, file: &str) -> Result<Vec<u8>> {
        let defines: Vec<&str> = self.defines.iter().map(String::as_str).collect();
        let arch = self.info().arch.as_str();
        if let Some(side) = ShimSide::ALL.into_iter().find(|s| s.arch() == arch) {
            return shim::image(file, side, &defines);
        }
        let image = if defines.is_empty() { compile::load(file, arch)? } else { compile::image(file, arch, &defines)? };
        Ok(image.bytes)
    }

    /// The driver and the stream, for graphs and events.
    pub(crate) fn raw(&self) -> (&dyn Driver, Handle) {
        (&*self.shared.driver, self.shared.stream)
    }
}

/// `n` values in device memory.
pub struct Buffer<T: Pod> {
    device: Device,
    address: Address,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address, for kernels that read addresses from memory.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its address as an argument.
    pub fn arg(&self) -> Arg {
        Arg::Pointer(self.address)
    }

    /// The address of value `at` as an argument.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn arg_at(&self, at: usize) -> Arg {
        assert!(at <= self.len, "offset {at} in a buffer of {}", self.len);
        Arg::Pointer(self.address + (at * size_of::<T>()) as Address)
    }

    /// Copies it to the host, after everything asked of the device so far.
    ///
    /// # Errors
    /// Whatever went wrong on the device since the last call.
    pub fn read(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        let (driver, stream) = self.device.raw();
        // SAFETY: the buffer holds `len` values; the vector lives until the stream is synchronised below.
        unsafe { driver.copy_out(bytemuck::cast_slice_mut(&mut values), self.address, stream)? };
        driver.sync(stream)?;
        Ok(values)
    }

    /// Replaces its first values.
    ///
    /// # Errors
    /// More values than it holds, or a driver's error.
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        if values.len() > self.len {
            let (expected, found) = (format!("at most {} values", self.len), values.len().to_string());
            return Err(GpuError::Launch { kernel: "copy to the device".into(), expected, found });
        }
        let (driver, stream) = self.device.raw();
        // SAFETY: there is room, and the source stays until the stream is synchronised below.
        unsafe { driver.copy_in(self.address, bytemuck::cast_slice(values), stream)? };
        driver.sync(stream)
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// A driver's error.
    pub fn fill(&mut self, byte: u8) -> Result<()> {
        let (driver, stream) = self.device.raw();
        // SAFETY: the range is the buffer's.
        unsafe { driver.fill(self.address, byte, self.len * size_of::<T>(), stream) }
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        let (driver, stream) = self.device.raw();
        // nothing may use the memory any more; an error here shows again in the next call
        let _ = driver.sync(stream);
        // SAFETY: the address came from this driver's `alloc` and is freed once.
        unsafe { driver.free(self.address) };
    }
}
