//! The driver functions in use, under both vendors' names. Their signatures agree word for word in the ABI, so one table serves
//! both; what differs (contexts, attributes, clusters) is in `cuda.rs` and `hip.rs`.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::Address;
use crate::error::{GpuError, Result};

/// Who made the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Cuda,
    Hip,
}

impl Vendor {
    /// What to call the library in an error.
    fn what(self) -> &'static str {
        match self {
            Vendor::Cuda => "the CUDA driver",
            Vendor::Hip => "the HIP runtime",
        }
    }

    /// File names, newest first.
    fn libraries(self) -> &'static [&'static str] {
        match (self, cfg!(windows)) {
            (Vendor::Cuda, false) => &["libcuda.so.1", "libcuda.so"],
            (Vendor::Hip, false) => &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
            (Vendor::Cuda, true) => &["nvcuda.dll"],
            (Vendor::Hip, true) => &["amdhip64_7.dll", "amdhip64_6.dll"],
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Vendor::Cuda => "it comes with NVIDIA's display driver",
            Vendor::Hip => "it comes with ROCm 6 or 7 (package hip-runtime-amd)",
        }
    }
}

/// A function of a library and its name there, for errors.
#[derive(Clone, Copy)]
pub(super) struct Entry<F> {
    pub name: &'static str,
    pub call: F,
}

/// Looks a function up.
///
/// # Safety
/// `F` is the function pointer type of that function.
pub(super) unsafe fn entry<F: Copy>(library: &Library, file: &str, name: &'static str) -> Result<Entry<F>> {
    // SAFETY: the caller vouches for the type; the library is never closed (`open` forgets it).
    match unsafe { library.get::<F>(name) } {
        Ok(symbol) => Ok(Entry { name, call: *symbol }),
        Err(_) => Err(GpuError::MissingFunction { library: file.to_string(), function: name }),
    }
}

/// Opens the driver library: the file that answered and its handle.
pub(super) fn open(vendor: Vendor) -> Result<(&'static str, &'static Library)> {
    let names = vendor.libraries();
    for name in names {
        // SAFETY: loading a vendor's driver runs its initialisers, as every program that uses it does.
        if let Ok(library) = unsafe { Library::new(*name) } {
            // Drivers do not survive being unloaded (they keep threads); the handle lives as long as the process.
            return Ok((name, Box::leak(Box::new(library))));
        }
    }
    Err(GpuError::Missing { what: vendor.what(), tried: names.join(", "), hint: vendor.hint().to_string() })
}

macro_rules! table {
    ($($field:ident($($arg:ty),*) $cuda:literal $hip:literal;)*) => {
        /// The functions that both vendors have. All return 0 or an error code.
        pub(super) struct Api {
            $(pub $field: Entry<unsafe extern "C" fn($($arg),*) -> c_int>,)*
        }

        impl Api {
            pub fn load(vendor: Vendor, library: &Library, file: &str) -> Result<Api> {
                let pick = |cuda: &'static str, hip: &'static str| if vendor == Vendor::Cuda { cuda } else { hip };
                // SAFETY: the types are those of cuda.h and hip_runtime_api.h; handles and device addresses are 64 bits.
                unsafe { Ok(Api { $($field: entry(library, file, pick($cuda, $hip))?,)* }) }
            }
        }
    };
}

/// An opaque pointer of the driver.
pub(super) type Raw = *mut c_void;

table! {
    init(c_uint) "cuInit" "hipInit";
    version(*mut c_int) "cuDriverGetVersion" "hipDriverGetVersion";
    error_name(c_int, *mut *const c_char) "cuGetErrorName" "hipDrvGetErrorName";
    device_count(*mut c_int) "cuDeviceGetCount" "hipGetDeviceCount";
    device(*mut c_int, c_int) "cuDeviceGet" "hipDeviceGet";
    device_name(*mut c_char, c_int, c_int) "cuDeviceGetName" "hipDeviceGetName";
    device_memory(*mut usize, c_int) "cuDeviceTotalMem_v2" "hipDeviceTotalMem";
    alloc(*mut Address, usize) "cuMemAlloc_v2" "hipMalloc";
    free(Address) "cuMemFree_v2" "hipFree";
    alloc_host(*mut *mut u8, usize, c_uint) "cuMemHostAlloc" "hipHostMalloc";
    free_host(*mut u8) "cuMemFreeHost" "hipHostFree";
    copy_in(Address, *const u8, usize, Raw) "cuMemcpyHtoDAsync_v2" "hipMemcpyHtoDAsync";
    copy_out(*mut u8, Address, usize, Raw) "cuMemcpyDtoHAsync_v2" "hipMemcpyDtoHAsync";
    copy(Address, Address, usize, Raw) "cuMemcpyDtoDAsync_v2" "hipMemcpyDtoDAsync";
    fill(Address, u8, usize, Raw) "cuMemsetD8Async" "hipMemsetD8Async";
    load_module(*mut Raw, *const c_void) "cuModuleLoadData" "hipModuleLoadData";
    function(*mut Raw, Raw, *const c_char) "cuModuleGetFunction" "hipModuleGetFunction";
    launch(Raw, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Raw, *mut Raw, *mut Raw) "cuLaunchKernel" "hipModuleLaunchKernel";
    stream(*mut Raw, c_uint) "cuStreamCreate" "hipStreamCreateWithFlags";
    destroy_stream(Raw) "cuStreamDestroy_v2" "hipStreamDestroy";
    sync(Raw) "cuStreamSynchronize" "hipStreamSynchronize";
    event(*mut Raw, c_uint) "cuEventCreate" "hipEventCreateWithFlags";
    destroy_event(Raw) "cuEventDestroy_v2" "hipEventDestroy";
    record(Raw, Raw) "cuEventRecord" "hipEventRecord";
    sync_event(Raw) "cuEventSynchronize" "hipEventSynchronize";
    elapsed(*mut f32, Raw, Raw) "cuEventElapsedTime" "hipEventElapsedTime";
    begin_capture(Raw, c_uint) "cuStreamBeginCapture_v2" "hipStreamBeginCapture";
    end_capture(Raw, *mut Raw) "cuStreamEndCapture" "hipStreamEndCapture";
    instantiate(*mut Raw, Raw, c_ulonglong) "cuGraphInstantiateWithFlags" "hipGraphInstantiateWithFlags";
    destroy_graph(Raw) "cuGraphDestroy" "hipGraphDestroy";
    replay(Raw, Raw) "cuGraphLaunch" "hipGraphLaunch";
    destroy_executable(Raw) "cuGraphExecDestroy" "hipGraphExecDestroy";
}

impl Api {
    /// An error for a non-zero code.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the function writes a pointer to a static string, or leaves it null for unknown codes.
        let name = unsafe {
            (self.error_name.call)(code, &mut text);
            if text.is_null() { "unknown error".into() } else { std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        Err(GpuError::Driver { call, code, name })
    }
}

/// Calls an entry of the table and checks its code.
macro_rules! call {
    ($api:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        $api.check($api.$entry.name, ($api.$entry.call)($($arg),*))
    };
}
pub(super) use call;
