//! Instruction-set levels. The level chooses code, never bits.

/// What the kernels may use, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Simd {
    /// The scalar reference (with the FMA instruction where the CPU has it: the same bits, much faster).
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with VNNI.
    Avx512Vnni,
    /// The same with VBMI, BITALG and GFNI.
    Avx512Vbmi,
}

impl Simd {
    /// The best level of this CPU.
    pub fn best() -> Simd {
        *Simd::available().last().expect("scalar is always there")
    }

    /// Every level that this CPU can run, ascending.
    pub fn available() -> Vec<Simd> {
        let mut v = vec![Simd::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 {
                v.push(Simd::Avx2);
            }
            if avx512 {
                v.push(Simd::Avx512);
                if is_x86_feature_detected!("avx512vnni") {
                    v.push(Simd::Avx512Vnni);
                    if is_x86_feature_detected!("avx512vbmi")
                        && is_x86_feature_detected!("avx512bitalg")
                        && is_x86_feature_detected!("gfni")
                    {
                        v.push(Simd::Avx512Vbmi);
                    }
                }
            }
        }
        v
    }

    /// The name used by `--simd` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Simd::Scalar => "scalar",
            Simd::Avx2 => "avx2",
            Simd::Avx512 => "avx512",
            Simd::Avx512Vnni => "avx512vnni",
            Simd::Avx512Vbmi => "avx512vbmi",
        }
    }
}

/// Whether VBMI permutes two registers of bytes as quickly as one: AMD's CPUs do, Intel's take three steps.
#[cfg(target_arch = "x86_64")]
pub(crate) fn permutes_two() -> bool {
    static AMD: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *AMD.get_or_init(|| {
        let leaf = std::arch::x86_64::__cpuid(0);
        // "AuthenticAMD"
        [leaf.ebx, leaf.edx, leaf.ecx] == [*b"Auth", *b"enti", *b"cAMD"].map(u32::from_le_bytes)
    })
}

/// Compiles one `#[inline(always)]` body once for each level and defines `pick(level)` to choose among them.
///
/// ```ignore
/// versions! { pub mod rms_norm = strata_ops::norm::rms_norm(x: &[f32], gain: &[f32], eps: f32, out: &mut [f32]) }
/// let f = rms_norm::pick(Simd::best());
/// ```
/// Rust neither contracts nor reassociates floats, so each version gives the same bits.
#[macro_export]
macro_rules! versions {
    ($vis:vis mod $name:ident = $body:path; ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        #[allow(clippy::too_many_arguments)]
        $vis mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[allow(unused_imports)]
            use $crate::simd::Simd;

            /// One version of the kernel.
            pub type Kernel = unsafe fn($($ty),*) $(-> $ret)?;

            unsafe fn plain($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "fma")]
            unsafe fn fma($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }

            /// The body compiled for no instruction set in particular.
            #[allow(dead_code)]
            pub fn definition() -> Kernel {
                plain
            }

            /// The version for a level. Sound to call if the level is one of [`Simd::available`].
            pub fn pick(level: Simd) -> Kernel {
                #[cfg(target_arch = "x86_64")]
                return match level {
                    Simd::Scalar if is_x86_feature_detected!("fma") => fma,
                    Simd::Scalar => plain,
                    Simd::Avx2 => avx2,
                    Simd::Avx512 | Simd::Avx512Vnni | Simd::Avx512Vbmi => avx512,
                };
                #[cfg(not(target_arch = "x86_64"))]
                { let _ = level; plain }
            }
        }
    };
}
