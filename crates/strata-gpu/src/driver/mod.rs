//! What a device must do, whoever made it: memory, modules, launches, streams, events, graphs.

mod api;
pub mod cuda;
pub mod hip;
mod native;
mod probe;

pub use probe::{Probe, probe};

use crate::error::Result;

/// Facts about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub name: String,
    /// The architecture kernels are compiled for: `sm_90a`, `gfx1201`, `shim-cuda`.
    pub arch: String,
    /// Multiprocessors or compute units.
    pub units: u32,
    pub l2_bytes: usize,
    pub memory_bytes: usize,
    /// Largest shared memory of a workgroup, bytes, after opting in.
    pub shared_bytes: usize,
}

/// An address in device memory.
pub type Address = u64;

/// An opaque handle of a driver: a module, a function, a stream, an event, a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A launch: workgroups, threads of a workgroup (one dimension), dynamic shared memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub groups: [u32; 3],
    pub threads: u32,
    pub shared: u32,
    /// Workgroups of a cluster along x; 1 where there are none.
    pub cluster: u32,
}

/// A device of any vendor, or the CPU shim. Calls with a stream are asynchronous; [`Driver::sync`] waits. Methods may
/// be called from any thread.
///
/// # Safety
/// Methods marked `unsafe` take addresses and handles that must be live ones of the same driver.
pub trait Driver: Send + Sync {
    fn info(&self) -> &DeviceInfo;

    /// `bytes` of device memory, aligned to 256. Contents are undefined.
    fn alloc(&self, bytes: usize) -> Result<Address>;
    /// # Safety
    /// `address` came from [`Driver::alloc`] and nothing on the device uses it any more.
    unsafe fn free(&self, address: Address);
    /// Page-locked host memory.
    fn alloc_host(&self, bytes: usize) -> Result<*mut u8>;
    /// # Safety
    /// `pointer` came from [`Driver::alloc_host`].
    unsafe fn free_host(&self, pointer: *mut u8);
    /// # Safety
    /// `to` has room for `from`, which stays unchanged until the stream is synchronised.
    unsafe fn copy_in(&self, to: Address, from: &[u8], stream: Handle) -> Result<()>;
    /// # Safety
    /// `from` holds as many bytes as `to`, which stays put until the stream is synchronised.
    unsafe fn copy_out(&self, to: &mut [u8], from: Address, stream: Handle) -> Result<()>;
    /// # Safety
    /// Both hold `bytes` and do not overlap.
    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: Handle) -> Result<()>;
    /// # Safety
    /// `to` holds `bytes`.
    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Handle) -> Result<()>;

    /// Loads a module from its image: cubin, hsaco, or the path of a shared object (shim).
    fn load_module(&self, image: &[u8]) -> Result<Handle>;
    /// A kernel of a module. `shared` is the dynamic shared memory that launches will ask for at most.
    fn function(&self, module: Handle, name: &str, shared: u32) -> Result<Handle>;
    /// # Safety
    /// `args` point to values of the types the kernel takes, in order; addresses among them are live and large enough.
    unsafe fn launch(&self, function: Handle, grid: Grid, stream: Handle, args: &mut [*mut std::ffi::c_void]) -> Result<()>;

    fn stream(&self) -> Result<Handle>;
    fn destroy_stream(&self, stream: Handle);
    fn sync(&self, stream: Handle) -> Result<()>;

    fn event(&self) -> Result<Handle>;
    fn destroy_event(&self, event: Handle);
    fn record(&self, event: Handle, stream: Handle) -> Result<()>;
    /// Milliseconds between two recorded events; waits for the second.
    fn elapsed(&self, from: Handle, to: Handle) -> Result<f32>;

    /// Starts recording what the stream is asked to do.
    fn begin_capture(&self, stream: Handle) -> Result<()>;
    /// Ends it: a graph that can be replayed. `None` where there are no graphs (the shim runs at once).
    fn end_capture(&self, stream: Handle) -> Result<Option<Handle>>;
    fn replay(&self, graph: Handle, stream: Handle) -> Result<()>;
    fn destroy_graph(&self, graph: Handle);
}
