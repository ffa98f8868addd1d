//! The limits shares are stated against, measured on the card at hand.

use super::{Timer, Timing, rotations};
use crate::device::{Buffer, Device};
use crate::driver::Grid;
use crate::error::Result;
use strata_cpu::parity::rng::Rng;

/// Measured limits of a card.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes a second: a large copy, reads plus writes.
    pub copy: f64,
    /// Bytes a second: a large read.
    pub read: f64,
    /// FMAs a second in f32.
    pub fma: f64,
    /// Multiply-adds of signed bytes a second by the four-way dot.
    pub dot4: f64,
    /// The same by matrix instructions; 0 where there are none.
    pub matrix_s8: f64,
    /// Multiply-adds of halves a second by matrix instructions.
    pub matrix_f16: f64,
}

fn grid(device: &Device, per_unit: u32, threads: u32) -> Grid {
    let units = if device.is_shim() { 1 } else { device.info().units * per_unit };
    Grid { groups: [units, 1, 1], threads, shared: 0, cluster: 1 }
}

/// Random words, so that no data-dependent power state flatters the figure.
fn random(device: &Device, bytes: usize) -> Result<Buffer<u64>> {
    let mut rng = Rng::new(11);
    device.upload(&(0..bytes / 8).map(|_| rng.bits()).collect::<Vec<_>>())
}

/// Time to read `bytes` (rounded down to whole 16-byte words) once, buffers rotated beyond the L2: what a kernel that must read
/// as much is compared with.
///
/// # Errors
/// Not enough memory, or a driver's error.
pub fn read_time(device: &Device, bytes: usize, timer: Timer) -> Result<Timing> {
    let words = bytes / 16;
    let sets = rotations(device, bytes);
    let buffer = random(device, (words * 16 * sets).max(16))?;
    let out = device.alloc::<u32>(1)?;
    let mut best: Option<Timing> = None;
    // as many workgroups as the size rewards
    for per_unit in [2, 4, 8] {
        let t = timer.time(device, &mut |i| {
            let at = buffer.arg_at(i % sets * words * 2);
            device.launch("limit_read", grid(device, per_unit, 256), &[at, out.arg(), (words as i64).into()])
        })?;
        if best.is_none_or(|b| t.median < b.median) {
            best = Some(t);
        }
    }
    Ok(best.expect("three sizes were timed"))
}

impl Limits {
    /// Measures them; a second or so on a card.
    ///
    /// # Errors
    /// Not enough memory, or a driver's error.
    pub fn measure(device: &Device) -> Result<Limits> {
        let timer = Timer { calls: 4, samples: 11 };
        let bytes = if device.is_shim() { 1 << 16 } else { 1usize << 30 };
        let (from, to) = (random(device, bytes)?, device.alloc::<u64>(bytes / 8)?);
        let words: i64 = (bytes / 16) as i64;
        let copy = timer.time(device, &mut |_| device.launch("limit_copy", grid(device, 8, 256), &[from.arg(), to.arg(), words.into()]))?;
        let read = timer.time(device, &mut |_| device.launch("limit_read", grid(device, 8, 256), &[from.arg(), to.arg(), words.into()]))?;
        let turns: i32 = if device.is_shim() { 8 } else { 4096 };
        let g = grid(device, 8, 256);
        let threads = f64::from(g.groups[0]) * 256.0 * 16.0 * f64::from(turns);
        let fma = timer.time(device, &mut |_| device.launch("limit_fma", g, &[to.arg(), 0.999f32.into(), 0.5f32.into(), turns.into()]))?;
        let dot4 = timer.time(device, &mut |_| device.launch("limit_dot4", g, &[to.arg(), 0x0102_fe03u32.into(), turns.into()]))?;
        let rate = |n: f64, t: Timing| n / (t.median * 1e-6);
        let matrix = |name: &str, macs: f64| -> Result<f64> {
            if !device.has(name) {
                return Ok(0.0);
            }
            let g = grid(device, 8, 128);
            let t = timer.time(device, &mut |_| device.launch(name, g, &[to.arg(), 0x1357_9bdfu32.into(), turns.into()]))?;
            Ok(rate(f64::from(g.groups[0]) * 4.0 * 8.0 * f64::from(turns) * macs, t))
        };
        let amd = device.info().arch.contains("gfx");
        Ok(Limits {
            copy: rate(2.0 * bytes as f64, copy),
            read: rate(bytes as f64, read),
            fma: rate(threads, fma),
            dot4: rate(threads * 4.0, dot4),
            matrix_s8: matrix("limit_matrix_s8", 4096.0)?,
            matrix_f16: matrix("limit_matrix_f16", if amd { 4096.0 } else { 2048.0 })?,
        })
    }
}

/// Prints the limits, and the time to read a few sizes.
pub(super) fn limits_bench(device: &Device, _numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let l = Limits::measure(device)?;
    line(format!("copy {:.0} GB/s (reads plus writes), read {:.0} GB/s", l.copy / 1e9, l.read / 1e9));
    line(format!(
        "f32 {:.1} TFMA/s, dot4 {:.1} TMAC/s, int8 matrix {:.1} TMAC/s, f16 matrix {:.1} TMAC/s",
        l.fma / 1e12,
        l.dot4 / 1e12,
        l.matrix_s8 / 1e12,
        l.matrix_f16 / 1e12
    ));
    for kib in [512usize, 4 << 10, 16 << 10, 32 << 10, 256 << 10] {
        let bytes = if device.is_shim() { kib } else { kib << 10 };
        let t = read_time(device, bytes, Timer::default())?;
        line(format!("read of {bytes:>10} bytes {t} {:>6.0} GB/s", bytes as f64 / t.median / 1e3));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::ShimSide;

    #[test]
    fn limits_run_on_every_side() {
        for side in ShimSide::ALL {
            let Some(device) = crate::testing::tools(Device::open(side.arch())) else { return };
            let l = Limits::measure(&device).unwrap();
            assert!([l.copy, l.read, l.fma, l.dot4, l.matrix_s8, l.matrix_f16].iter().all(|v| *v > 0.0), "{l:?}");
            assert!(read_time(&device, 4096, Timer::default()).unwrap().median > 0.0);
        }
    }
}
