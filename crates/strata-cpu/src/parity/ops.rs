//! Suite of the ops around products and attention: norms, gates, convolution, gated delta rule, routing, rope.

use super::rng::Rng;
use super::{Arm, CaseReport};
use crate::backend::kernels::Kernels;
use crate::simd::Simd;
use strata_ops::gdn::{COLUMNS, Columns, Scan};
use strata_ops::rope::{RopeScaling, RopeTable};

/// One run of an op on random inputs: its outputs, and the same in f64 (empty where there is nothing to round).
type Op = fn(&Kernels, &mut Rng) -> (Vec<f32>, Vec<f64>);

/// Every op with the largest error it may have against f64, as a share of the largest output.
const OPS: [(&str, Op, f64); 14] = [
    ("rms_norm", rms_norm, 1e-6),
    ("low_gate", low_gate, 1e-6),
    ("hyper_mix", hyper_mix, 1e-6),
    ("inject_gate", inject_gate, 1e-6),
    ("hyper_write", hyper_write, 1e-6),
    ("silu_mul", silu_mul, 1e-6),
    ("conv_silu", conv_silu, 1e-6),
    ("gdn_norm", gdn_norm, 1e-6),
    ("gdn_gates", gdn_gates, 2e-6),
    ("gdn_scan", gdn_scan, 1e-5),
    ("gdn_gated_norm", gdn_gated_norm, 1e-6),
    ("ngram_gate", ngram_gate, 1e-5),
    ("rope", rope, 1e-6),
    ("experts_combine", experts_combine, 1e-6),
];

/// Every op of every level against its definition. `full` runs more and larger shapes.
pub fn ops_parity(full: bool, report: &mut dyn FnMut(CaseReport)) {
    ops_parity_of(Arm::Fast, full, report);
}

/// [`ops_parity`] of a chosen arm: the fast arm is every level there is.
pub fn ops_parity_of(arm: Arm, full: bool, report: &mut dyn FnMut(CaseReport)) {
    let want = Kernels::definition();
    let arms: Vec<(&str, Kernels)> = match arm {
        Arm::Fast => Simd::available().into_iter().map(|l| (l.name(), Kernels::pick(l))).collect(),
        Arm::Level(l) => vec![(l.name(), Kernels::pick(l))],
        Arm::Broken => vec![("broken", Kernels { rms_norm: broken_rms_norm, ..Kernels::pick(Simd::best()) })],
    };
    for (level, got) in &arms {
        for (name, op, gate) in OPS {
            let mut c = CaseReport { suite: "ops_parity", case: format!("{name} {level}"), compared: 0, differing: 0, max_err64: None };
            for seed in 0..if full { 400 } else { 40 } {
                let (a, _) = op(got, &mut Rng::new(seed));
                let (b, exact) = op(&want, &mut Rng::new(seed));
                c.compared += a.len() as u64;
                c.differing += a.iter().zip(&b).filter(|(x, y)| x.to_bits() != y.to_bits()).count() as u64;
                let scale = exact.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
                let err = a.iter().zip(&exact).map(|(x, y)| (f64::from(*x) - y).abs() / scale).fold(0.0, f64::max);
                c.max_err64 = Some(c.max_err64.unwrap_or(0.0).max(err));
                // an error above the gate is a difference too: identical must not mean identically wrong
                c.differing += u64::from(err > gate);
            }
            report(c);
        }
    }
}

/// As the definition but for two levels of the tree, which are swapped.
///
/// # Safety
/// None: the type of a kernel asks for the word.
unsafe fn broken_rms_norm(x: &[f32], width: usize, gain: &[f32], first: usize, eps: f32, out: &mut [f32]) {
    let stretches = gain.len() / width;
    for (i, (x, out)) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
        let mut p = [0.0f32; 32];
        for (j, v) in x.iter().enumerate() {
            p[j % 32] = v.mul_add(*v, p[j % 32]);
        }
        for half in [8, 16, 4, 2, 1] {
            let old = p;
            for l in 0..32 {
                p[l] = old[l] + old[l ^ half];
            }
        }
        let r = 1.0 / (p[0] / width as f32 + eps).sqrt();
        let g = &gain[(first + i) % stretches * width..];
        for ((o, v), g) in out.iter_mut().zip(x).zip(g) {
            *o = (v * r) * g;
        }
    }
}

fn f64s(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

fn sig64(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// A width that lane counts do not divide, most of the time.
fn width(rng: &mut Rng) -> usize {
    1 + rng.below(700)
}

fn norm64(x: &[f64], gain: &[f64], eps: f64) -> Vec<f64> {
    let r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + eps).sqrt();
    x.iter().zip(gain).map(|(v, g)| v * r * g).collect()
}

fn rms_norm(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (w, rows, stretches) = (width(rng), 1 + rng.below(5), 1 + rng.below(3));
    let (x, gain) = (rng.normals(w * rows, 2.0), rng.normals(w * stretches, 1.0));
    let mut out = vec![0.0; w * rows];
    // SAFETY: kernels of a level of this CPU, here and below.
    unsafe { (k.rms_norm)(&x, w, &gain, 1, 1e-6, &mut out) };
    let (x64, g64) = (f64s(&x), f64s(&gain));
    let exact = x64.chunks(w).enumerate().flat_map(|(i, x)| norm64(x, &g64[(i + 1) % stretches * w..], 1e-6)).collect();
    (out, exact)
}

fn low_gate(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let n = width(rng);
    let mut x = rng.normals(n, 12.0);
    let exact = f64s(&x).iter().map(|v| v * 0.25 * sig64(v * 0.25)).collect();
    // SAFETY: as above.
    unsafe { (k.low_gate)(&mut x, 0.25) };
    (x, exact)
}

fn hyper_mix(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (h, s) = (width(rng), 1 + rng.below(6));
    let (up, norm) = (rng.normals(h * s, 3.0), rng.normals(h * s, 1.0));
    let inv = 1.0 / s as f32;
    let mut y = vec![7.0; h];
    // SAFETY: as above.
    unsafe { (k.hyper_mix)(&up, &norm, inv, &mut y) };
    let exact = (0..h).map(|j| (0..s).map(|i| sig64(f64::from(up[i * h + j])) * f64::from(norm[i * h + j])).sum::<f64>() * f64::from(inv));
    (y, exact.collect())
}

fn inject_gate(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let n = width(rng);
    let mut x = rng.normals(n, 8.0);
    let exact = f64s(&x).iter().map(|v| 2.0 * sig64(v * 0.25)).collect();
    // SAFETY: as above.
    unsafe { (k.inject_gate)(&mut x, 0.25) };
    (x, exact)
}

fn hyper_write(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (h, s) = (width(rng), 1 + rng.below(6));
    let (mut r, inject, o) = (rng.normals(h * s, 2.0), rng.normals(s, 1.0), rng.normals(h, 1.0));
    let exact = (0..h * s).map(|i| f64::from(r[i]) + f64::from(inject[i / h]) * f64::from(o[i % h])).collect();
    // SAFETY: as above.
    unsafe { (k.hyper_write)(&mut r, &inject, &o) };
    (r, exact)
}

fn silu_mul(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let n = width(rng);
    let (g, u) = (rng.normals(n, 4.0), rng.normals(n, 1.0));
    let mut h = vec![0.0; n];
    // SAFETY: as above.
    unsafe { (k.silu_mul)(&g, &u, &mut h) };
    let exact = f64s(&g).iter().zip(f64s(&u)).map(|(g, u)| g * sig64(*g) * u).collect();
    (h, exact)
}

fn conv_silu(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (c, taps, dilation, rows) = (width(rng), 1 + rng.below(5), 1 + rng.below(3), 1 + rng.below(8));
    let back = (taps - 1) * dilation;
    let (x, state, w) = (rng.normals(rows * c, 1.0), rng.normals(back * c, 1.0), rng.normals(taps * c, 1.0));
    let all = f64s(&[&state[..], &x[..]].concat());
    let (mut out, mut exact) = (vec![0.0; rows * c], Vec::new());
    for t in 0..rows {
        // SAFETY: as above.
        unsafe { (k.conv_silu_row)(&x, &state, &w, dilation, t, &mut out[t * c..(t + 1) * c]) };
        exact.extend((0..c).map(|ch| {
            let y: f64 = (0..taps).map(|k| f64::from(w[k * c + ch]) * all[(t + k * dilation) * c + ch]).sum();
            y * sig64(y)
        }));
    }
    (out, exact)
}

fn gdn_norm(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (d, heads) = (8 * (1 + rng.below(20)), 1 + rng.below(4));
    let mut x = rng.normals(2 * heads * d, 1.0);
    let scale = 1.0 / (d as f32).sqrt();
    let x64 = f64s(&x);
    let exact = x64.chunks(d).enumerate().flat_map(|(i, h)| {
        let r = 1.0 / (h.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt() * if i < heads { f64::from(scale) } else { 1.0 };
        h.iter().map(|v| v * r).collect::<Vec<_>>()
    });
    let exact: Vec<f64> = exact.collect();
    // SAFETY: as above.
    unsafe { (k.gdn_norm_row)(&mut x, d, 1e-6, scale) };
    (x, exact)
}

fn gdn_gates(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let n = 1 + rng.below(80);
    let (alpha, b, dt) = (rng.normals(n, 6.0), rng.normals(n, 3.0), rng.normals(n, 2.0));
    let a: Vec<f32> = (0..n).map(|_| -3.0 * rng.uniform() - 0.01).collect();
    let (mut decay, mut beta) = (vec![0.0; n], vec![0.0; n]);
    // SAFETY: as above.
    unsafe { (k.gdn_gates)(&alpha, &b, &a, &dt, &mut decay, &mut beta) };
    let exact = (0..n).map(|i| libm::exp(f64::from(a[i]) * libm::log1p(libm::exp(f64::from(alpha[i]) + f64::from(dt[i])))));
    let exact = exact.chain(b.iter().map(|b| sig64(f64::from(*b)))).collect();
    (decay.into_iter().chain(beta).collect(), exact)
}

fn gdn_scan(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (d, rows) = (8 * (1 + rng.below(20)), 1 + rng.below(6));
    let stride = 2 * d + COLUMNS;
    let mut qkv = rng.normals(rows * stride, 1.0);
    for row in qkv.chunks_exact_mut(stride) {
        // SAFETY: as above.
        unsafe { (k.gdn_norm_row)(&mut row[..2 * d], d, 1e-6, 1.0) };
    }
    let decay: Vec<f32> = (0..rows).map(|_| rng.uniform()).collect();
    let beta: Vec<f32> = (0..rows).map(|_| rng.uniform()).collect();
    let mut state = rng.normals(d * COLUMNS, 1.0);
    let mut s64 = f64s(&state);
    let mut out = vec![0.0; rows * COLUMNS];
    let scan = Scan { qkv: &qkv, stride, q: 0, k: d, v: 2 * d, key_dim: d, decay: &decay, beta: &beta, heads: 1, head: 0, rows };
    // SAFETY: the output has `rows` rows of `COLUMNS` and is used by this call alone; kernels as above.
    unsafe { (k.gdn_scan)(&scan, &mut state, Some(Columns::new(out.as_mut_ptr(), COLUMNS, rows, 0))) };
    let mut exact = Vec::new();
    for t in 0..rows {
        let row = f64s(&qkv[t * stride..(t + 1) * stride]);
        for j in 0..COLUMNS {
            let dot: f64 = (0..d).map(|i| s64[i * COLUMNS + j] * f64::from(decay[t]) * row[d + i]).sum();
            let e = f64::from(beta[t]) * (row[2 * d + j] - dot);
            let mut o = 0.0;
            for i in 0..d {
                let s = &mut s64[i * COLUMNS + j];
                *s = *s * f64::from(decay[t]) + row[d + i] * e;
                o += *s * row[i];
            }
            exact.push(o);
        }
    }
    out.extend(state);
    exact.extend(s64);
    (out, exact)
}

fn gdn_gated_norm(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let n = width(rng);
    let (mut o, z, gain) = (rng.normals(n, 1.0), rng.normals(n, 3.0), rng.normals(n, 1.0));
    let exact = norm64(&f64s(&o), &f64s(&gain), 1e-6).iter().zip(&z).map(|(o, z)| o * sig64(f64::from(*z))).collect();
    // SAFETY: as above.
    unsafe { (k.gdn_gated_norm)(&mut o, &z, &gain, 1e-6) };
    (o, exact)
}

fn ngram_gate(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (h, s) = (width(rng), 1 + rng.below(5));
    let (key, query, v) = (rng.normals(h * s, 1.0), rng.normals(h * s, 1.0), rng.normals(h, 1.0));
    let mut u = vec![0.0; h * s];
    // SAFETY: as above.
    unsafe { (k.ple_gate)(&key, &query, &v, &mut u) };
    let exact = (0..s).flat_map(|i| {
        let at = i * h..(i + 1) * h;
        let a = key[at.clone()].iter().zip(&query[at]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / (h as f64).sqrt();
        let g = sig64(a.signum() * a.abs().max(1e-6).sqrt());
        v.iter().map(move |v| g * f64::from(*v)).collect::<Vec<_>>()
    });
    (u, exact.collect())
}

fn rope(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (dims, heads) = (2 * (1 + rng.below(32)), 1 + rng.below(4));
    let w = dims + rng.below(100);
    let table = RopeTable::new(50, dims, 1e4, RopeScaling::None);
    let mut x = rng.normals(heads * w, 1.0);
    let pos = rng.below(50);
    let (cos, sin) = table.at(pos);
    let mut exact = f64s(&x);
    for h in exact.chunks_exact_mut(w) {
        for i in 0..dims / 2 {
            let (a, b, c, s) = (h[i], h[i + dims / 2], f64::from(cos[i]), f64::from(sin[i]));
            (h[i], h[i + dims / 2]) = (a * c - b * s, b * c + a * s);
        }
    }
    // SAFETY: as above.
    unsafe { (k.rope_row)(&mut x, w, &table, pos) };
    (x, exact)
}

fn experts_combine(k: &Kernels, rng: &mut Rng) -> (Vec<f32>, Vec<f64>) {
    let (h, experts) = (width(rng), 2 + rng.below(30));
    let ranks = 1 + rng.below(experts);
    let logits = rng.normals(experts, 2.0);
    let (mut ids, mut weights) = (vec![0; ranks], vec![0.0; ranks]);
    let (e, shared, g) = (rng.normals(ranks * h, 1.0), rng.normals(h, 1.0), rng.normal());
    let mut out = vec![0.0; h];
    // SAFETY: as above.
    unsafe {
        (k.route)(&logits, &mut ids, &mut weights);
        (k.combine)(&e, &weights, &shared, g, &mut out);
    }
    let mut order: Vec<usize> = (0..experts).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    let p: Vec<f64> = order[..ranks].iter().map(|i| libm::exp(f64::from(logits[*i]) - f64::from(logits[order[0]]))).collect();
    let sum: f64 = p.iter().sum();
    let exact: Vec<f64> = (0..h)
        .map(|j| (0..ranks).map(|r| p[r] / sum * f64::from(e[r * h + j])).sum::<f64>() + sig64(f64::from(g)) * f64::from(shared[j]))
        .collect();
    // ids are compared too
    let exact = exact.into_iter().chain(order[..ranks].iter().map(|i| *i as f64)).collect();
    (out.into_iter().chain(ids.iter().map(|i| *i as f32)).collect(), exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_gives_the_bits_of_the_definitions_within_the_gates() {
        let mut cases = 0;
        ops_parity(false, &mut |c| {
            assert!(c.compared > 0 && c.differing == 0, "{c:?}");
            cases += 1;
        });
        assert_eq!(cases, OPS.len() * Simd::available().len());
    }

    #[test]
    fn a_broken_norm_is_seen() {
        let mut differing = 0;
        ops_parity_of(Arm::Broken, false, &mut |c| {
            if c.case.starts_with("rms_norm") {
                differing += c.differing;
            }
        });
        assert!(differing > 0);
    }
}
