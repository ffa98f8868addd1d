//! `words_parity`: each word of the vocabulary for every lane, against plain Rust.

use super::differing;
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::Result;
use half::f16;
use strata_cpu::parity::CaseReport;
use strata_cpu::parity::rng::Rng;
use strata_ops::math;
use strata_ops::qsa::digits;

const POISON: u8 = 0x5a;

/// Runs every word's kernel. `full` changes nothing.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn words_parity(device: &Device, _full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let mut rng = Rng::new(7);
    let mut done = |case: &str, got: &[u32], want: &[u32]| {
        let (compared, differing) = (want.len() as u64, differing(got, want));
        report(CaseReport { suite: "words_parity", case: case.into(), compared, differing, max_err64: None });
    };
    let run = |kernel: &str, threads: u32, groups: u32, args: &[Arg]| {
        device.launch(kernel, Grid { groups: [groups, 1, 1], threads, shared: 0, cluster: 1 }, args)
    };
    let poisoned = |n: usize| -> Result<Buffer<u32>> {
        let mut b = device.alloc(n)?;
        b.fill(POISON)?;
        Ok(b)
    };
    for _ in 0..4 {
        let v: Vec<u32> = (0..256).map(|_| rng.bits() as u32).collect();
        let from: Vec<u32> = (0..32).map(|_| rng.below(32) as u32).collect();
        let (input, from_b) = (device.upload(&v)?, device.upload(&from)?);

        let out = poisoned(9 * 32)?;
        run("test_lanes", 32, 1, &[input.arg(), from_b.arg(), out.arg()])?;
        let mut want: Vec<u32> = [16, 8, 4, 2, 1].iter().flat_map(|m| (0..32).map(|l| v[l ^ m]).collect::<Vec<_>>()).collect();
        want.extend(from.iter().map(|f| v[*f as usize]));
        let sum = |n: usize| v[..n].iter().fold(0u32, |a, b| a.wrapping_add(*b));
        want.extend([sum(32); 32]);
        want.extend((0..32).map(|l| sum(l + 1)));
        want.extend([(0..32).fold(0, |b, l| b | (v[l] & 1) << l); 32]);
        done("lanes", &out.read()?, &want);

        let floats = rng.normals(32, 1e3);
        let out = poisoned(32)?;
        run("test_wave_sum", 32, 1, &[device.upload(&floats)?.arg(), out.arg()])?;
        let tree = math::butterfly::<32>(std::array::from_fn(|i| floats[i])).to_bits();
        done("float tree", &out.read()?, &[tree; 32]);

        let index: Vec<u32> = (0..32).map(|_| rng.bits() as u32).collect();
        let table: Vec<u32> = (0..4).map(|_| rng.bits() as u32).collect();
        let out = poisoned(5 * 32)?;
        run("test_bytes", 32, 1, &[input.arg(), device.upload(&index)?.arg(), device.upload(&table)?.arg(), out.arg()])?;
        done("bytes", &out.read()?, &bytes(&v[..32], &index, &table));

        let out = poisoned(256)?;
        run("test_barriers", 256, 1, &[input.arg(), out.arg()])?;
        let total = sum(256);
        let want: Vec<u32> = (0..256).map(|t| v[t].wrapping_add(total)).collect();
        done("barriers", &out.read()?, &want);

        let words: Vec<u32> = (0..512).map(|_| rng.bits() as u32).collect();
        let out = poisoned(512)?;
        run("test_async", 64, 1, &[device.upload(&words)?.arg(), out.arg()])?;
        let want: Vec<u32> = (0..128).flat_map(|i| words[(i / 64 * 64 + 63 - i % 64) * 4..][..4].to_vec()).collect();
        done("async copies", &out.read()?, &want);
    }

    let n = 4096;
    let x: Vec<f32> = (0..n)
        .map(|i| match i % 4 {
            0 => rng.normal() * 30.0,
            1 => f32::from_bits(rng.bits() as u32),
            2 => rng.normal() * 1e-40,
            _ => [0.0, -0.0, 88.8, -87.1, f32::INFINITY, f32::NEG_INFINITY, 65519.9, 65520.0, 6e-8, 3e-8][rng.below(10)],
        })
        .filter(|v| !v.is_nan())
        .collect();
    let out = poisoned(6 * x.len())?;
    run("test_math", 256, x.len().div_ceil(256) as u32, &[device.upload(&x)?.arg(), out.arg(), (x.len() as i32).into()])?;
    let functions: [fn(f32) -> f32; 6] = [
        math::exp,
        |v| v / 3.0,
        |v| v.abs().sqrt(),
        |v| f16::from_f32_const(v).to_f32_const(),
        |v| digits::integer(v, 1000.0) as f32,
        |v| {
            let d = digits::digits(digits::integer(v, 1000.0)).map(i32::from);
            digits::join(d[0], d[1] + 256 * d[2])
        },
    ];
    let want: Vec<u32> = functions.iter().flat_map(|f| x.iter().map(|v| f(*v).to_bits()).collect::<Vec<_>>()).collect();
    done("math", &out.read()?, &want);

    if device.has("test_matrix_s8") {
        let amd = device.info().arch.contains("gfx");
        let (m, n, k8, k16) = if amd { (16, 16, 16, 16) } else { (16, 8, 32, 16) };
        let a: Vec<i8> = (0..m * k8).map(|_| rng.bits() as i8).collect();
        let b: Vec<i8> = (0..n * k8).map(|_| rng.bits() as i8).collect();
        let out = poisoned(m * n)?;
        run("test_matrix_s8", 32, 1, &[device.upload(&a)?.arg(), device.upload(&b)?.arg(), out.arg()])?;
        let dot = |i: usize, j: usize| (0..k8).map(|k| i32::from(a[i * k8 + k]) * i32::from(b[j * k8 + k])).sum::<i32>() as u32;
        let want: Vec<u32> = (0..m * n).map(|c| dot(c / n, c % n)).collect();
        done("matrix, bytes", &out.read()?, &want);

        // small integers, whose sums are exact in any order
        let small = |rng: &mut Rng| f16::from_f32_const(rng.below(17) as f32 - 8.0);
        let a: Vec<f16> = (0..m * k16).map(|_| small(&mut rng)).collect();
        let b: Vec<f16> = (0..n * k16).map(|_| small(&mut rng)).collect();
        let bits = |v: &[f16]| v.iter().map(|h| h.to_bits()).collect::<Vec<u16>>();
        let out = poisoned(m * n)?;
        run("test_matrix_f16", 32, 1, &[device.upload(&bits(&a))?.arg(), device.upload(&bits(&b))?.arg(), out.arg()])?;
        let dot =
            |i: usize, j: usize| (0..k16).map(|k| a[i * k16 + k].to_f32_const() * b[j * k16 + k].to_f32_const()).sum::<f32>().to_bits();
        let want: Vec<u32> = (0..m * n).map(|c| dot(c / n, c % n)).collect();
        done("matrix, halves", &out.read()?, &want);
    }
    Ok(())
}

/// What `test_bytes` gives.
fn bytes(v: &[u32], index: &[u32], table: &[u32]) -> Vec<u32> {
    let mut want = Vec::new();
    let pick = |bytes: &[u8], sel: [usize; 4]| u32::from_le_bytes(sel.map(|s| bytes[s]));
    want.extend(v.iter().map(|x| pick(&[x.to_le_bytes(), (!x).to_le_bytes()].concat(), [7, 2, 5, 0])));
    let table: Vec<u8> = table.iter().flat_map(|t| t.to_le_bytes()).collect();
    for mask in [7, 15] {
        want.extend(index.iter().map(|i| pick(&table, i.to_le_bytes().map(|b| (b & mask) as usize))));
    }
    want.extend((0..32).map(|l| u32::from_le_bytes(std::array::from_fn(|i| v[l / 4 * 4 + i].to_le_bytes()[l % 4]))));
    want.extend((0..32).map(|l| {
        let dot = v[l].to_le_bytes().iter().zip(index[l].to_le_bytes()).map(|(a, b)| i32::from(*a as i8) * i32::from(b as i8)).sum::<i32>();
        (dot + l as i32) as u32
    }));
    want
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{Order, ShimSide, open_ordered};

    fn total(device: &Device) -> (u64, u64) {
        let mut t = (0, 0);
        words_parity(device, false, &mut |c| {
            assert_eq!(c.differing, 0, "{} on {}", c.case, device.info().arch);
            t = (t.0 + 1, t.1 + c.compared);
        })
        .unwrap();
        t
    }

    #[test]
    fn words_agree_on_every_side_and_schedule() {
        for side in ShimSide::ALL {
            for order in [Order::Forward, Order::Reversed, Order::Random(3)] {
                let Some(driver) = crate::testing::tools(open_ordered(side, order)) else { return };
                let (cases, compared) = total(&Device::new(driver).unwrap());
                assert!(cases == 23 && compared > 20_000, "{cases} {compared}");
            }
        }
    }

    #[test]
    fn the_shim_names_what_a_kernel_must_not_do() {
        for side in ShimSide::ALL {
            let Some(device) = crate::testing::tools(Device::open(side.arch())) else { return };
            let (input, out) = (device.upload(&[1u32; 128]).unwrap(), device.alloc::<u32>(32).unwrap());
            let grid = Grid { groups: [1, 1, 1], threads: 32, shared: 0, cluster: 1 };
            let e = device.launch("test_divergent", grid, &[input.arg(), out.arg()]).unwrap_err().to_string();
            assert!(e.contains("divergent"), "{e}");
            let e = device.launch("test_unwaited", grid, &[input.arg(), out.arg()]).unwrap_err().to_string();
            assert!(e.contains("async"), "{e}");
            let e = device.launch("test_lanes", grid, &[input.arg(), out.arg(), 3i32.into()]).unwrap_err().to_string();
            assert!(e.contains("ppp") && e.contains("ppi"), "{e}");
        }
    }

    /// Writes inside a shared array, then past its end.
    #[test]
    #[ignore = "ends its process; sanitizers_see_overruns_of_shared_memory runs it in one of its own"]
    fn overrun() {
        let device = Device::open("shim-cuda").unwrap();
        for first in [0u32, 1] {
            let at: Vec<u32> = (first..first + 32).collect();
            let (at, out) = (device.upload(&at).unwrap(), device.alloc::<u32>(32).unwrap());
            device.launch("test_overrun", Grid { groups: [1, 1, 1], threads: 32, shared: 0, cluster: 1 }, &[at.arg(), out.arg()]).unwrap();
            println!("{first}: went unseen");
        }
    }

    #[test]
    fn sanitizers_see_overruns_of_shared_memory() {
        let Some((command, _)) = crate::testing::tools(crate::shim::compiler()) else { return };
        let found = std::process::Command::new(&command).arg("-print-file-name=libasan.so").output().unwrap().stdout;
        let runtime = String::from_utf8(found).unwrap().trim().to_string();
        if !runtime.starts_with('/') {
            return eprintln!("not run: {command} has no libasan.so");
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "parity::words::tests::overrun", "--ignored", "--nocapture"])
            .env("LD_PRELOAD", runtime)
            .env("STRATA_SHIM_SANITIZE", "address,undefined")
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("0: went unseen") && !text.contains("1: went unseen"), "{text}");
        assert!(text.contains("AddressSanitizer") && text.contains("test_overrun"), "{text}");
    }
}
