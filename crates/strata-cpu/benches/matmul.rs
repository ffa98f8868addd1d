//! Speed of matrix products beside a plain copy: `cargo bench -p strata-cpu --bench matmul [-- FORMAT..]`.
//!
//! One thread. The speed of copying memory that fits the caches is measured first.

use bytes::Bytes;
use std::hint::black_box;
use std::time::{Duration, Instant};
use strata_cpu::matmul::{Matrix, matmul, prepare};
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_ops::matmul::{Acts, Forms};
use strata_quant::DType;

/// Seconds a call, the best of many short rounds, so that other work on the machine shows little.
fn time(mut f: impl FnMut()) -> f64 {
    f();
    let start = Instant::now();
    f();
    let calls = (1e-4 / start.elapsed().as_secs_f64().max(1e-8)).ceil().clamp(1.0, 1e6) as usize;
    let round = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        start.elapsed().as_secs_f64() / calls as f64
    };
    let until = Instant::now() + Duration::from_millis(100);
    let mut best = f64::MAX;
    while Instant::now() < until {
        best = best.min(round(&mut f));
    }
    best
}

fn limits() {
    let (from, mut to) = (vec![1u8; 1 << 20], vec![0u8; 1 << 20]);
    let seconds = time(|| black_box(&mut to[..]).copy_from_slice(black_box(&from)));
    println!("copying 1 MiB: {:.1} GB/s read", from.len() as f64 / seconds / 1e9);
}

fn main() {
    let wanted: Vec<DType> = std::env::args().filter_map(|a| DType::from_name(&a)).collect();
    let pool = Pool::new(1);
    limits();
    for dtype in DType::all().filter(|d| wanted.is_empty() || wanted.contains(d)) {
        for (rows, cols) in [(1024, 256), (4096, 256), (512, 1024), (256, 2560)] {
            let bytes: Vec<u8> = (0..rows * dtype.row_bytes(cols).expect("whole blocks")).map(|i| (i * 7 % 61) as u8).collect();
            for simd in Simd::available() {
                let w = Matrix::new(dtype, rows, cols, Bytes::from(bytes.clone()), simd).expect("sizes agree");
                print!("{:7} {:10} {rows:4} x {cols:4}", dtype.name(), simd.name());
                for n in [1, 2, 3, 4, 5, 64] {
                    let x: Vec<f32> = (0..n * cols).map(|i| (i * 31 % 97) as f32 - 48.0).collect();
                    let mut acts = Acts::new(n, cols, Forms::of([dtype]));
                    prepare(&pool, simd, &x, n, &mut acts);
                    let mut out = vec![0.0; n * rows];
                    let seconds = time(|| matmul(&pool, &w, &acts, n, black_box(&mut out)));
                    let rate = (n * rows * cols) as f64 / seconds / 1e9;
                    print!("  n={n}: {rate:5.1} GMAC/s");
                    if n == 1 {
                        print!(" {:5.1} GB/s", bytes.len() as f64 / seconds / 1e9);
                    }
                }
                println!();
            }
        }
    }
}
