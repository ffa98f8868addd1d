//! `kv_append_parity`: appended KV rows and index keys against the definitions, in one call and cell by cell.

use super::attn_data::{Side, permutation};
use super::differing;
use super::qsa_merge::KINDS;
use crate::attention::{IndexKeys, KvPool, PageTable, append_cells, append_index_keys};
use crate::device::{Buffer, Device};
use crate::error::Result;
use strata_cpu::parity::CaseReport;
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::index_key::{dead_key, pooled_key};
use strata_ops::qsa::kv::KvKind;
use strata_ops::qsa::{BLOCK, HEAD_DIM, INDEX_DIM, row_of};
use strata_ops::rope::{RopeScaling, RopeTable};

const SUITE: &str = "kv_append_parity";
const KV_HEADS: usize = 2;
const POISON: u8 = 0x5a;

/// Every format and the index keys: batches from several positions on, against the scalar encoders and against single
/// appends. Bytes of a pool that no cell owns must stay.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn kv_append_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let batches: &[(usize, usize)] =
        if full { &[(0, 1), (3, 1), (5, 7), (0, 2_048), (4_093, 4_096), (262_130, 9)] } else { &[(0, 1), (5, 9), (14, 6)] };
    for (from, n) in batches {
        let mut rng = Rng::new((*from * 31 + *n) as u64);
        for kind in KINDS {
            rows_case(device, &mut rng, kind, *from, *n, report)?;
        }
    }
    let batches: &[&[usize]] = if full { &[&[1; 40], &[5, 1, 2, 700, 1, 3_000, 7], &[4_096]] } else { &[&[1; 9], &[6, 1, 2, 20]] };
    for sizes in batches {
        index_case(device, sizes, report)?;
    }
    Ok(())
}

fn steps(from: usize, n: usize) -> Vec<i32> {
    (from..from + n).flat_map(|p| [p as i32, p as i32 + 1, (p as i32 + 1) / 4, p as i32 + 1]).collect()
}

/// A row with what encoders treat apart: zeros, ties of largest magnitude, scales that vanish or overflow as halves.
fn row(rng: &mut Rng, i: usize) -> [f32; HEAD_DIM] {
    let scale = [1.0, 1e-3, 40.0, 1e-8, 1e7][rng.below(5)];
    std::array::from_fn(|d| match i % 4 {
        1 if d < 64 => 0.0,
        2 => [scale, -scale, scale / 2.0, 0.0][rng.below(4)],
        3 if d % 64 < 3 => -0.0,
        _ => rng.normal() * scale,
    })
}

fn rows_case(device: &Device, rng: &mut Rng, kind: KvKind, from: usize, n: usize, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let first_page = from / BLOCK;
    // a table of every page up to the last cell, over a pool that holds the appended ones only, in another order
    let held = (from + n).div_ceil(BLOCK) - first_page + 2;
    let mut table = vec![-1; first_page];
    table.extend(permutation(rng, held));
    let k: Vec<[f32; HEAD_DIM]> = (0..n * KV_HEADS).map(|i| row(rng, i)).collect();
    let v: Vec<[f32; HEAD_DIM]> = (0..n * KV_HEADS).map(|i| row(rng, i + 1)).collect();
    let rows = held * BLOCK * KV_HEADS;
    let mut want = [Side::filled(kind.keys(), rows, POISON), Side::filled(kind.values(), rows, POISON)];
    for i in 0..n {
        let c = from + i;
        for h in 0..KV_HEADS {
            let at = row_of(table[c / BLOCK] as usize * BLOCK + c % BLOCK, h, KV_HEADS);
            want[0].encode(at, &k[i * KV_HEADS + h]);
            want[1].encode(at, &v[i * KV_HEADS + h]);
        }
    }
    let table = device.upload(&table)?;
    let table = PageTable { pages: &table, stride: 0 };
    let poisoned = || -> Result<KvPool> {
        let mut pool = KvPool::new(device, kind, KV_HEADS, held)?;
        for side in 0..2 {
            Side::filled([kind.keys(), kind.values()][side], rows, POISON).upload(&mut pool, side)?;
        }
        Ok(pool)
    };
    let mut case =
        CaseReport { suite: SUITE, case: format!("{} {n} cells from {from}", kind.name()), compared: 0, differing: 0, max_err64: None };
    let mut compare = |pool: &KvPool| -> Result<()> {
        for (side, want) in want.iter().enumerate() {
            let (codes, scales) = want.parts();
            case.compared += (codes.len() + scales.len()) as u64;
            case.differing += differing(&pool.codes[side].read()?, codes);
            if !scales.is_empty() {
                case.differing += differing(&pool.scales[side].read()?, scales);
            }
        }
        Ok(())
    };
    let append = |pool: &mut KvPool, from: usize, cells: std::ops::Range<usize>| -> Result<()> {
        let wide = cells.start * KV_HEADS..cells.end * KV_HEADS;
        let (k, v) = (device.upload(k[wide.clone()].as_flattened())?, device.upload(v[wide].as_flattened())?);
        let records = device.upload(&steps(from, cells.len()))?;
        append_cells(device, pool, &records, table, &k, &v, cells.len())?;
        device.sync()
    };
    let mut pool = poisoned()?;
    append(&mut pool, from, 0..n)?;
    compare(&pool)?;
    if n <= 16 {
        let mut pool = poisoned()?;
        for i in 0..n {
            append(&mut pool, from + i, i..i + 1)?;
        }
        compare(&pool)?;
    }
    report(case);
    Ok(())
}

/// A sequence appended in batches of these sizes.
fn index_case(device: &Device, sizes: &[usize], report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let (cells, eps) = (sizes.iter().sum::<usize>(), 1e-6);
    let ring = sizes.iter().max().map_or(0, |n| n + 4).next_multiple_of(8);
    let mut rng = Rng::new(cells as u64);
    let raw = rng.normals(cells * INDEX_DIM, 1.5);
    let gain: Vec<f32> = (0..INDEX_DIM).map(|_| 1.0 + 0.1 * rng.normal()).collect();
    let rope = RopeTable::new(cells, 64, 1e7, RopeScaling::None);
    let cos: Vec<f32> = (0..cells).flat_map(|p| rope.at(p).0).copied().collect();
    let sin: Vec<f32> = (0..cells).flat_map(|p| rope.at(p).1).copied().collect();

    let poison = f32::from_bits(u32::from_ne_bytes([POISON; 4]));
    let mut pooled = vec![poison; cells.div_ceil(BLOCK) * INDEX_DIM];
    let mut dead = vec![0.0; INDEX_DIM];
    let mut kept = vec![poison; ring * INDEX_DIM];
    let raws = raw.as_chunks::<INDEX_DIM>().0;
    dead_key(&raws[0], &gain, eps, &mut dead);
    for (b, out) in pooled.as_chunks_mut::<INDEX_DIM>().0.iter_mut().enumerate().take(cells / BLOCK) {
        let (cos, sin) = rope.at(b * BLOCK);
        pooled_key(std::array::from_fn(|j| &raws[b * BLOCK + j][..]), &gain, eps, cos, sin, out);
    }
    for (c, key) in raws.iter().enumerate() {
        kept[c % ring * INDEX_DIM..][..INDEX_DIM].copy_from_slice(key);
    }

    let filled = |n: usize| -> Result<Buffer<f32>> {
        let mut b = device.alloc(n)?;
        b.fill(POISON)?;
        Ok(b)
    };
    let mut keys = IndexKeys {
        pooled: filled(pooled.len())?,
        dead: filled(INDEX_DIM)?,
        ring: filled(ring * INDEX_DIM)?,
        gain: device.upload(&gain)?,
        eps,
        cos: device.upload(&cos)?,
        sin: device.upload(&sin)?,
    };
    let mut from = 0;
    for n in sizes {
        let new = device.upload(raws[from..from + n].as_flattened())?;
        append_index_keys(device, &mut keys, &device.upload(&steps(from, *n))?, &new, *n)?;
        device.sync()?;
        from += n;
    }
    let mut case = CaseReport { suite: SUITE, case: format!("index keys {sizes:?}"), compared: 0, differing: 0, max_err64: None };
    for (got, want) in [(&keys.pooled, &pooled), (&keys.dead, &dead), (&keys.ring, &kept)] {
        case.compared += want.len() as u64;
        case.differing += differing(&got.read()?, want);
    }
    report(case);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tools;

    fn totals(device: &Device) -> [u64; 3] {
        let mut t = [0; 3];
        kv_append_parity(device, false, &mut |c| {
            if c.differing != 0 {
                println!("{c:?}");
            }
            t = [t[0] + 1, t[1] + c.compared, t[2] + c.differing];
        })
        .unwrap();
        t
    }

    #[test]
    fn appends_agree_on_every_side() {
        for side in ["shim-cuda", "shim-gfx12", "shim-gfx11"] {
            let Some(device) = tools(Device::open(side)) else { return };
            let t = totals(&device);
            println!("{side}: {t:?}");
            assert!(t[0] == 14 && t[1] > 100_000 && t[2] == 0, "{side} {t:?}");
        }
    }

    /// An append that divides by the scale before it is rounded.
    #[test]
    fn a_broken_append_is_seen() {
        let Some(device) = tools(Device::open("shim-cuda")) else { return };
        assert!(totals(&device.with_defines(&["STRATA_BROKEN_SCALE"]))[2] > 100);
    }
}
