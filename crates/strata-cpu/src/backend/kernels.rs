//! The scalar definitions of `strata-ops`, compiled for every instruction-set level.

use crate::simd::Simd;
use crate::versions;
use strata_ops::gdn::{Columns, Scan};
use strata_ops::rope::RopeTable;
use strata_ops::{conv, gdn, hyper, moe, norm, ple, rope};

versions! { pub mod rms_norm = rms_norm_rows; (x: &[f32], width: usize, gain: &[f32], first: usize, eps: f32, out: &mut [f32]) }
versions! { pub mod low_gate = hyper::low_gate; (lo: &mut [f32], inv_streams: f32) }
versions! { pub mod hyper_mix = hyper::mix; (up: &[f32], norm: &[f32], inv_streams: f32, y: &mut [f32]) }
versions! { pub mod inject_gate = hyper::inject_gate; (x: &mut [f32], inv_streams: f32) }
versions! { pub mod hyper_write = hyper::write; (r: &mut [f32], inject: &[f32], o: &[f32]) }
versions! { pub mod silu_mul = moe::silu_mul; (gate: &[f32], up: &[f32], h: &mut [f32]) }
versions! { pub mod conv_silu_row = conv::conv_silu_row; (x: &[f32], state: &[f32], w: &[f32], dilation: usize, t: usize, out: &mut [f32]) }
versions! { pub mod gdn_norm_row = gdn_norm_row; (qk: &mut [f32], key_dim: usize, eps: f32, scale: f32) }
versions! { pub mod gdn_gates = gdn::gates; (alpha: &[f32], b: &[f32], a: &[f32], dt: &[f32], decay: &mut [f32], beta: &mut [f32]) }
versions! { pub mod gdn_scan = gdn::scan_block::<8>; (s: &Scan<'_>, state: &mut [f32], out: Option<Columns>) }
versions! { pub mod gdn_gated_norm = gdn::gated_norm; (o: &mut [f32], z: &[f32], gain: &[f32], eps: f32) }
versions! { pub mod ple_gate = ple::gate; (key: &[f32], query: &[f32], v: &[f32], u: &mut [f32]) }
versions! { pub mod ple_add = ple::add; (r: &mut [f32], u: &[f32], c: &[f32]) }
versions! { pub mod rope_row = rope_row; (x: &mut [f32], width: usize, table: &RopeTable, pos: usize) }
versions! { pub mod gate_output = moe::gate_output; (o: &mut [f32], gate: &[f32]) }
versions! { pub mod route = moe::route; (logits: &[f32], ids: &mut [u32], weights: &mut [f32]) }
versions! { pub mod combine = moe::combine; (experts: &[f32], weights: &[f32], shared: &[f32], shared_gate: f32, out: &mut [f32]) }
versions! { pub mod all_finite = all_finite_body; (x: &[f32]) -> bool }

versions! { mod exp_rows = exp_rows_body; (x: &mut [f32]) }

#[inline(always)]
fn exp_rows_body(x: &mut [f32]) {
    for v in x.iter_mut() {
        *v = strata_ops::math::exp(*v);
    }
}

/// [`strata_ops::math::exp`] of every value in place, with the instructions of `level` (plain ones if this CPU does
/// not have it).
pub fn exp_in_place(level: Simd) -> fn(&mut [f32]) {
    let level = if Simd::available().contains(&level) { level } else { Simd::Scalar };
    match level {
        // SAFETY: only a level of this CPU gets here.
        Simd::Scalar => |x| unsafe { exp_rows::pick(Simd::Scalar)(x) },
        // SAFETY: as above.
        Simd::Avx2 => |x| unsafe { exp_rows::pick(Simd::Avx2)(x) },
        // SAFETY: as above.
        Simd::Avx512 | Simd::Avx512Vnni | Simd::Avx512Vbmi => |x| unsafe { exp_rows::pick(Simd::Avx512)(x) },
    }
}

/// RMS norms of rows of `width`; the first is row `first` of the call, which decides its stretch of the gain.
#[inline(always)]
fn rms_norm_rows(x: &[f32], width: usize, gain: &[f32], first: usize, eps: f32, out: &mut [f32]) {
    let stretches = gain.len() / width;
    for (i, (x, out)) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
        let g = (first + i) % stretches;
        norm::rms_norm(x, &gain[g * width..(g + 1) * width], eps, out);
    }
}

/// Query heads (scaled), then as many key heads.
#[inline(always)]
fn gdn_norm_row(qk: &mut [f32], key_dim: usize, eps: f32, scale: f32) {
    let (q, k) = qk.split_at_mut(qk.len() / 2);
    for h in q.chunks_exact_mut(key_dim) {
        norm::l2_norm_in_place(h, eps, scale);
    }
    for h in k.chunks_exact_mut(key_dim) {
        norm::l2_norm_in_place(h, eps, 1.0);
    }
}

/// Every head of a row.
#[inline(always)]
fn rope_row(x: &mut [f32], width: usize, table: &RopeTable, pos: usize) {
    let (cos, sin) = table.at(pos);
    for h in x.chunks_exact_mut(width) {
        rope::rotate(h, cos, sin);
    }
}

#[inline(always)]
fn all_finite_body(x: &[f32]) -> bool {
    // an exponent of all ones: infinity or NaN; folded without a branch so that it vectorises
    let mut worst = 0u32;
    for v in x {
        worst = worst.max(v.to_bits() & 0x7f80_0000);
    }
    worst != 0x7f80_0000
}

/// The scan at a level: written out where the compiler does not find the registers.
fn pick_gdn_scan(level: Simd) -> gdn_scan::Kernel {
    #[cfg(target_arch = "x86_64")]
    match level {
        Simd::Scalar => {}
        Simd::Avx2 => return super::gdn_x86::scan_avx2,
        Simd::Avx512 | Simd::Avx512Vnni | Simd::Avx512Vbmi => return super::gdn_x86::scan_avx512,
    }
    gdn_scan::pick(level)
}

/// One pick of every kernel.
pub struct Kernels {
    pub rms_norm: rms_norm::Kernel,
    pub low_gate: low_gate::Kernel,
    pub hyper_mix: hyper_mix::Kernel,
    pub inject_gate: inject_gate::Kernel,
    pub hyper_write: hyper_write::Kernel,
    pub silu_mul: silu_mul::Kernel,
    pub conv_silu_row: conv_silu_row::Kernel,
    pub gdn_norm_row: gdn_norm_row::Kernel,
    pub gdn_gates: gdn_gates::Kernel,
    pub gdn_scan: gdn_scan::Kernel,
    pub gdn_gated_norm: gdn_gated_norm::Kernel,
    pub ple_gate: ple_gate::Kernel,
    pub ple_add: ple_add::Kernel,
    pub rope_row: rope_row::Kernel,
    pub gate_output: gate_output::Kernel,
    pub route: route::Kernel,
    pub combine: combine::Kernel,
    pub all_finite: all_finite::Kernel,
}

impl Kernels {
    /// The definitions as they are, compiled for nothing in particular: the arm that the others are compared with.
    pub fn definition() -> Kernels {
        Kernels {
            rms_norm: rms_norm::definition(),
            low_gate: low_gate::definition(),
            hyper_mix: hyper_mix::definition(),
            inject_gate: inject_gate::definition(),
            hyper_write: hyper_write::definition(),
            silu_mul: silu_mul::definition(),
            conv_silu_row: conv_silu_row::definition(),
            gdn_norm_row: gdn_norm_row::definition(),
            gdn_gates: gdn_gates::definition(),
            gdn_gated_norm: gdn_gated_norm::definition(),
            ple_gate: ple_gate::definition(),
            ple_add: ple_add::definition(),
            rope_row: rope_row::definition(),
            gate_output: gate_output::definition(),
            route: route::definition(),
            combine: combine::definition(),
            all_finite: all_finite::definition(),
            gdn_scan: gdn_scan::definition(),
        }
    }

    /// The kernels of a level.
    pub fn pick(level: Simd) -> Kernels {
        Kernels {
            rms_norm: rms_norm::pick(level),
            low_gate: low_gate::pick(level),
            hyper_mix: hyper_mix::pick(level),
            inject_gate: inject_gate::pick(level),
            hyper_write: hyper_write::pick(level),
            silu_mul: silu_mul::pick(level),
            conv_silu_row: conv_silu_row::pick(level),
            gdn_norm_row: gdn_norm_row::pick(level),
            gdn_gates: gdn_gates::pick(level),
            gdn_scan: pick_gdn_scan(level),
            gdn_gated_norm: gdn_gated_norm::pick(level),
            ple_gate: ple_gate::pick(level),
            ple_add: ple_add::pick(level),
            rope_row: rope_row::pick(level),
            gate_output: gate_output::pick(level),
            route: route::pick(level),
            combine: combine::pick(level),
            all_finite: all_finite::pick(level),
        }
    }
}
