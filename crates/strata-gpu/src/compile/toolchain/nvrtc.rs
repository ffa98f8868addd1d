//! NVRTC, opened at run time. It makes machine code without a driver and without a device.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

use super::reach::Source;
use super::sm_number;
use crate::error::{GpuError, Result};

const NAMES: &[&str] =
    if cfg!(windows) { &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"] } else { &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"] };
/// Where NVIDIA's Python packages keep it, below a directory of packages.
const IN_PACKAGES: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

type Program = *mut c_void;
type Call<T> = unsafe extern "C" fn(Program, T) -> c_int;
type Create = unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;

/// The functions in use and what is known of the library.
pub struct Nvrtc {
    pub path: PathBuf,
    release: (c_int, c_int),
    supported: Vec<c_int>,
    create: Create,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log: (Call<*mut usize>, Call<*mut u8>),
    cubin: (Call<*mut usize>, Call<*mut u8>),
    ptx: (Call<*mut usize>, Call<*mut u8>),
    error: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// The NVRTC to use: `STRATA_NVRTC` (a file or its folder), else the system's, the CUDA toolkit's, or that of the Python packages.
pub fn open() -> Result<&'static Nvrtc> {
    static FOUND: OnceLock<std::result::Result<Nvrtc, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(|tried| GpuError::Missing {
        what: "NVRTC",
        tried: tried.clone(),
        hint: "install the CUDA toolkit (12.8 or newer) or the Python package nvidia-cuda-nvrtc, or set STRATA_NVRTC".into(),
    })
}

fn find() -> std::result::Result<Nvrtc, String> {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut tried = Vec::new();
    let mut attempt = |path: PathBuf| {
        let found = load(&path);
        if found.is_none() {
            tried.push(path.display().to_string());
        }
        found
    };
    let in_folder = |dir: &Path| NAMES.iter().map(|n| dir.join(n)).filter(|p| p.exists()).collect::<Vec<_>>();
    let found = if let Some(path) = set("STRATA_NVRTC") {
        let list = if path.is_dir() { in_folder(&path) } else { vec![path.clone()] };
        let list = if list.is_empty() { vec![path.join(NAMES[0])] } else { list };
        list.into_iter().find_map(&mut attempt)
    } else {
        let toolkits = [set("CUDA_HOME"), set("CUDA_PATH"), Some("/usr/local/cuda".into())];
        let toolkits = toolkits.into_iter().flatten().flat_map(|d| in_folder(&d.join("lib64")));
        NAMES.iter().map(PathBuf::from).chain(toolkits).find_map(&mut attempt).or_else(|| {
            let packages = python_path().into_iter().flat_map(|d| IN_PACKAGES.map(|p| d.join(p)));
            packages.flat_map(|d| in_folder(&d)).find_map(&mut attempt)
        })
    };
    found.ok_or_else(|| tried.join(", "))
}

/// Python's directories of packages; empty where there is no Python.
fn python_path() -> Vec<PathBuf> {
    let output = Command::new("python3").args(["-c", "import sys; print('\\n'.join(sys.path))"]).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().filter(|l| !l.is_empty()).map(PathBuf::from).collect()
}

fn load(path: &Path) -> Option<Nvrtc> {
    // SAFETY: loading NVRTC runs its initialisers, as every program that uses it does. The types are those of nvrtc.h, the same
    // in releases 12 and 13. The library is never closed.
    unsafe {
        let library = Library::new(path).ok()?;
        let library: &'static Library = Box::leak(Box::new(library));
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = *library.get("nvrtcVersion").ok()?;
        let mut release = (0, 0);
        version(&mut release.0, &mut release.1);
        open_builtins(path, release);
        Some(Nvrtc {
            path: path.to_path_buf(),
            release,
            supported: supported(library)?,
            create: *library.get("nvrtcCreateProgram").ok()?,
            destroy: *library.get("nvrtcDestroyProgram").ok()?,
            compile: *library.get("nvrtcCompileProgram").ok()?,
            log: (*library.get("nvrtcGetProgramLogSize").ok()?, *library.get("nvrtcGetProgramLog").ok()?),
            cubin: (*library.get("nvrtcGetCUBINSize").ok()?, *library.get("nvrtcGetCUBIN").ok()?),
            ptx: (*library.get("nvrtcGetPTXSize").ok()?, *library.get("nvrtcGetPTX").ok()?),
            error: *library.get("nvrtcGetErrorString").ok()?,
        })
    }
}

/// NVRTC opens a second library by its bare name when it compiles. It lies beside the first, where the loader may not look;
/// once open it is found by name.
fn open_builtins(path: &Path, (major, minor): (c_int, c_int)) {
    let beside = path.with_file_name(format!("libnvrtc-builtins.so.{major}.{minor}"));
    if beside.exists() {
        // SAFETY: NVIDIA's own library, a table of headers.
        if let Ok(library) = unsafe { Library::new(beside) } {
            std::mem::forget(library);
        }
    }
}

/// The compute capabilities it compiles for.
///
/// # Safety
/// `library` is NVRTC.
unsafe fn supported(library: &Library) -> Option<Vec<c_int>> {
    // SAFETY: the types are those of nvrtc.h; the second call writes as many ints as the first said.
    unsafe {
        let count: unsafe extern "C" fn(*mut c_int) -> c_int = *library.get("nvrtcGetNumSupportedArchs").ok()?;
        let list: unsafe extern "C" fn(*mut c_int) -> c_int = *library.get("nvrtcGetSupportedArchs").ok()?;
        let mut n = 0;
        count(&mut n);
        let mut archs = vec![0; usize::try_from(n).ok()?];
        list(archs.as_mut_ptr());
        Some(archs)
    }
}

pub fn options(arch: &str, defines: &[&str]) -> Vec<String> {
    let number = sm_number(arch).unwrap_or_default() * 10;
    let fixed = ["--std=c++17", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-default-device", "--ptxas-options=-v"];
    let mut options = vec![format!("--gpu-architecture={arch}"), format!("-DSTRATA_SM={number}")];
    options.extend(fixed.map(String::from));
    options.extend(defines.iter().map(|d| format!("-D{d}")));
    options
}

impl Nvrtc {
    pub fn version(&self) -> String {
        format!("NVRTC {}.{}", self.release.0, self.release.1)
    }

    pub fn supports(&self, arch: &str) -> bool {
        sm_number(arch).is_some_and(|n| self.supported.contains(&(n as c_int)))
    }

    /// A cubin (PTX for `compute_*`) and the log.
    pub fn compile(&self, file: &str, arch: &str, sources: &[Source], options: &[String]) -> Result<(Vec<u8>, String)> {
        let fail = |log: String| GpuError::Compile { file: file.to_string(), arch: arch.to_string(), log };
        if !self.supports(arch) {
            return Err(fail(format!("{} compiles for {:?} only", self.version(), self.supported)));
        }
        let strings = |list: &mut dyn Iterator<Item = &str>| -> Result<Vec<CString>> {
            list.map(|s| CString::new(s).map_err(|_| fail("a source or an option holds a zero byte".into()))).collect()
        };
        let texts = strings(&mut sources.iter().map(|(_, text)| *text))?;
        let paths = strings(&mut sources.iter().map(|(path, _)| *path))?;
        let options = strings(&mut options.iter().map(String::as_str))?;
        let pointers = |list: &[CString]| -> Vec<*const c_char> { list.iter().map(|s| s.as_ptr()).collect() };
        let main = sources.iter().position(|(path, _)| *path == file).ok_or_else(|| fail("not among its own sources".into()))?;
        let (text_pointers, path_pointers, option_pointers) = (pointers(&texts), pointers(&paths), pointers(&options));
        let mut program = Handle { nvrtc: self, program: std::ptr::null_mut() };
        // SAFETY: all strings end with zero and outlive the calls; counts are those of the arrays.
        let (created, compiled) = unsafe {
            let (texts, paths) = (text_pointers.as_ptr(), path_pointers.as_ptr());
            let (text, path) = (text_pointers[main], path_pointers[main]);
            let created = (self.create)(&mut program.program, text, path, sources.len() as c_int, texts, paths);
            let count = option_pointers.len() as c_int;
            (created, if created == 0 { (self.compile)(program.program, count, option_pointers.as_ptr()) } else { created })
        };
        let log = if created == 0 { program.read(self.log).unwrap_or_default() } else { Vec::new() };
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_string();
        if compiled != 0 {
            // SAFETY: returns a static string for any code.
            let name = unsafe { CStr::from_ptr((self.error)(compiled)) }.to_string_lossy();
            return Err(fail(format!("{name}\n{log}")));
        }
        let which = if arch.starts_with("compute_") { self.ptx } else { self.cubin };
        let bytes = program.read(which).map_err(|code| fail(format!("the image cannot be read (code {code})\n{log}")))?;
        Ok((bytes, log))
    }
}

/// A program, destroyed when dropped.
struct Handle<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Handle<'_> {
    /// One of the results: size, then bytes.
    fn read(&self, (size, get): (Call<*mut usize>, Call<*mut u8>)) -> std::result::Result<Vec<u8>, c_int> {
        let mut bytes = 0;
        // SAFETY: a live program; the second call writes as many bytes as the first said.
        unsafe {
            match size(self.program, &mut bytes) {
                0 => {}
                code => return Err(code),
            }
            let mut buffer = vec![0; bytes];
            match get(self.program, buffer.as_mut_ptr()) {
                0 => Ok(buffer),
                code => Err(code),
            }
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: created once, destroyed once.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}
