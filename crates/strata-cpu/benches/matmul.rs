//! Speed of grouped products of experts beside the limits of the machine:
//! `cargo bench -p strata-cpu --bench matmul [-- FORMAT.. COLUMNS.. t=THREADS r=ROUNDS]`.

use strata_cpu::bench::{Product, Timing, look_ups, mat_vec, read_bandwidth};
use strata_cpu::simd::Simd;
use strata_quant::DType;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: usize| args.iter().find_map(|a| a.strip_prefix(name)?.parse().ok()).unwrap_or(default);
    let wanted: Vec<DType> = args.iter().filter_map(|a| DType::from_name(a)).collect();
    let mut columns: Vec<usize> = args.iter().filter_map(|a| a.parse().ok()).collect();
    if columns.is_empty() {
        columns = vec![1, 32];
    }
    let (threads, rounds) = (option("t=", 2), option("r=", 7));
    let simd = Simd::best();
    let stream = read_bandwidth(threads, rounds);
    println!("reading memory, {threads} threads: {}", gigabytes(&stream));
    let tables = [look_ups(false, rounds), look_ups(true, rounds)].map(|t| t.map_or(f64::NAN, |t| t.rate()));
    println!("look-ups, one thread: {:.2} G/s of 4 codes, {:.2} G/s of 8", tables[0] / 1e9, tables[1] / 1e9);
    for dtype in DType::all().filter(|d| if wanted.is_empty() { !d.is_float() } else { wanted.contains(d) }) {
        for cols in [2560, 640] {
            if dtype.row_bytes(cols).is_none() {
                continue;
            }
            let rows = if cols == 640 { 2560 } else { 640 };
            print!("{:8}{:10} {rows:4} x {cols:4}", dtype.name(), simd.name());
            for &n in &columns {
                let t = mat_vec(Product { dtype, rows, cols, experts: if n > 8 { 2 } else { 10 }, columns: n, threads, simd }, rounds);
                print!("  n={n}: {:6.1} GMAC/s", t.rate() / 1e9);
                if n == 1 {
                    print!(", {} = {:3.0}% of reading", gigabytes(&t), 100.0 * t.bandwidth() / stream.bandwidth());
                    let codes = match dtype {
                        DType::IQ3_S | DType::IQ3_XXS => 4.0,
                        DType::IQ2_S | DType::IQ2_XS | DType::IQ2_XXS | DType::IQ1_S | DType::IQ1_M => 8.0,
                        _ => continue,
                    };
                    let limit = tables[usize::from(codes == 8.0)] * threads as f64;
                    print!(", {:3.0}% of look-ups", 100.0 * t.rate() / codes / limit);
                }
            }
            println!();
        }
    }
}

fn gigabytes(t: &Timing) -> String {
    format!("{:.1} GB/s ({:.1}..{:.1})", t.bandwidth() / 1e9, t.bytes / t.slowest / 1e9, t.bytes / t.fastest / 1e9)
}
