//! How many waves a multiprocessor can hold, as a share of what it could.

use super::resources::Resources;
use crate::compile::sm_number;

/// Limits of a multiprocessor (NVIDIA) or of a workgroup processor with its four SIMDs (AMD).
struct Limits {
    waves: u64,
    groups: u64,
    shared: u64,
    /// Shared memory the system takes of each workgroup.
    reserved: u64,
    shared_step: u64,
    /// Registers of all lanes and the step in which a wave gets them.
    registers: u64,
    register_step: u64,
}

const LANES: u64 = 32;

fn limits(arch: &str) -> Option<Limits> {
    let Some(number) = sm_number(arch) else {
        // RDNA2 to RDNA4: 16 waves a SIMD; 1,536 registers a lane on the large parts of RDNA3 and RDNA4, else 1,024.
        let large = ["gfx1100", "gfx1101", "gfx1151", "gfx12"].iter().any(|a| arch.starts_with(a));
        let (registers, step) = if large { (1536, 24) } else { (1024, 16) };
        return ["gfx103", "gfx11", "gfx12"].iter().any(|a| arch.starts_with(a)).then_some(Limits {
            waves: 4 * 16,
            groups: 64,
            shared: 128 << 10,
            reserved: 0,
            shared_step: 1024,
            registers: 4 * registers * LANES,
            register_step: step * LANES,
        });
    };
    let (waves, groups, shared_kib) = match number {
        75 => (32, 16, 64),
        80 => (64, 32, 164),
        86 => (48, 16, 100),
        89 => (48, 24, 100),
        90 | 100 => (64, 32, 228),
        120 => (48, 24, 100),
        _ => return None,
    };
    let reserved = if number >= 80 { 1024 } else { 0 };
    let (registers, register_step) = (65536, 256);
    Some(Limits { waves, groups, shared: shared_kib << 10, reserved, shared_step: 128, registers, register_step })
}

/// Waves held, in percent of the most possible, for workgroups of so many threads and no dynamic shared memory. `None` for
/// architectures that are not in the table.
pub fn percent(arch: &str, resources: &Resources, threads: u32) -> Option<u64> {
    let limits = limits(arch)?;
    let waves = u64::from(threads).div_ceil(LANES).max(1);
    // Registers belong to the SIMD (a quarter of the whole) that a wave runs on.
    let of_wave = (resources.registers.max(1) * LANES).next_multiple_of(limits.register_step);
    let by_registers = limits.registers / 4 / of_wave * 4 / waves;
    let shared = (resources.shared + limits.reserved).next_multiple_of(limits.shared_step);
    let by_shared = limits.shared.checked_div(shared).unwrap_or(limits.groups);
    let groups = by_registers.min(by_shared).min(limits.groups).min(limits.waves / waves);
    Some(groups * waves * 100 / limits.waves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_cases() {
        let r = |registers, shared| Resources { registers, shared, ..Resources::default() };
        // From NVIDIA's tables: 64 registers and 256 threads leave 32 of 64 warps; 32 registers all.
        assert_eq!(percent("sm_90a", &r(64, 0), 256), Some(50));
        assert_eq!(percent("sm_90a", &r(32, 0), 256), Some(100));
        assert_eq!(percent("sm_80", &r(32, 47 << 10), 256), Some(37));
        // RDNA4: up to 96 registers 16 waves a SIMD, 192 give 8.
        assert_eq!(percent("gfx1201", &r(96, 0), 128), Some(100));
        assert_eq!(percent("gfx1201", &r(192, 0), 128), Some(50));
        assert_eq!(percent("gfx1201", &r(32, 64 << 10), 1024), Some(100));
        // RDNA2: 1,024 registers in steps of 16.
        assert_eq!(percent("gfx1030", &r(64, 0), 128), Some(100));
        assert_eq!(percent("gfx1030", &r(65, 0), 128), Some(75));
        assert_eq!(percent("sm_30", &r(1, 0), 32), None);
    }
}
