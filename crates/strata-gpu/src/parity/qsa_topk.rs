//! `qsa_topk_active_parity`: ids of every top-k kernel and of the dispatch against the definition.

use crate::device::Device;
use crate::error::Result;
use crate::selection::topk::{Selecting, TopK, select, select_with};
use crate::selection::topk_table::TopkTable;
use std::ops::Range;
use strata_cpu::parity::{CaseReport, TOPK_CAPACITY, TopkCase};
use strata_ops::qsa::BLOCK;
use strata_ops::qsa::topk::top_k;

/// Row strides: of scores by the capacity, of ids the widest selection.
const MAX_BLOCKS: usize = TOPK_CAPACITY / BLOCK + 2;
const CAP: usize = 2_051;

/// Ids of the 16 published cases, of the block counts where kernels change and of a tie among few blocks, for the published width
/// and the engine's: the dispatch without and with a count of active blocks, and each kernel that can take the case. Not `full`:
/// one query and one width a case, cases of few blocks and of each mode, clusters (a thousand threads each of eight workgroups,
/// which take the shim a second) in three.
///
/// # Errors
/// A kernel that does not compile or run.
pub fn qsa_topk_active_parity(device: &Device, full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    let cases = TopkCase::all().into_iter().chain([TopkCase::new(8_195, 1, 2, 99)]);
    for (i, case) in cases.filter(|c| full || c.ctx <= 36_867 || c.mode > 0 || c.queries == 1).enumerate() {
        let (queries, widths) = if full { (0..case.queries, 0..2) } else { (case.queries - 1..case.queries, i % 2..i % 2 + 1) };
        let (compared, differing) = run_case(device, &case, &queries.collect::<Vec<_>>(), widths, full)?;
        report(CaseReport {
            suite: "qsa_topk_active_parity",
            case: format!("ctx {} nq {} mode {}", case.ctx, case.queries, case.mode),
            compared,
            differing,
            max_err64: None,
        });
    }
    Ok(())
}

/// Table, kernel where it is not the table's choice, count of active blocks.
type Run = (TopkTable, Option<TopK>, Option<usize>);

/// What a case is run by: the dispatch, and the kernels that can take so many blocks; all of them if `full`, else the
/// smallest and the largest of registers, and clusters for some cases.
fn runs(device: &Device, case: &TopkCase, blocks: usize, full: bool) -> Vec<Run> {
    // mode 3: no count, though one is given; mode 4: more than there is room for
    let counted = match case.mode {
        3 => 0,
        4 => MAX_BLOCKS + 1,
        _ => blocks,
    };
    let mut table = TopkTable::for_arch(&device.info().arch);
    if !full {
        table.cluster_queries = 0;
    }
    let able = |k: &TopK| device.has(k.kernel()) && k.reach() >= blocks;
    let mut kernels: Vec<TopK> = TopK::ALL.into_iter().filter(|k| able(k) && (full || k.held() == 0)).collect();
    if !full {
        kernels.extend(TopK::REG.into_iter().find(able));
        kernels.extend(TopK::REG.into_iter().rfind(able));
    }
    let mut runs: Vec<Run> = [None, Some(counted)].map(|active| (table, None, active)).to_vec();
    runs.extend(kernels.into_iter().map(|k| (table, Some(k), Some(blocks))));
    if device.has(TopK::Cluster9.kernel()) && (full || case.queries == 1 || case.mode == 2) {
        // few blocks by the whole cluster all the same
        runs.push((TopkTable { cluster_solo: 0, ..table }, Some(TopK::Cluster9), None));
    }
    runs
}

fn run_case(device: &Device, case: &TopkCase, queries: &[usize], widths: Range<usize>, full: bool) -> Result<(u64, u64)> {
    let n = queries.len();
    let mut scores = vec![0.0f32; n * MAX_BLOCKS];
    for (row, q) in scores.chunks_exact_mut(MAX_BLOCKS).zip(queries) {
        // what no kernel may select lies behind the blocks
        row[case.cells(*q) / BLOCK + 1..].fill(f32::INFINITY);
        case.scores(*q, row);
    }
    let scores_on = device.upload(&scores)?;
    let mut ids = device.alloc::<i32>(n * CAP)?;
    let blocks = queries.iter().map(|q| case.cells(*q) / BLOCK + 1).max().unwrap_or(1);
    let runs = runs(device, case, blocks, full);
    let (mut compared, mut differing) = (0, 0);
    for which in widths {
        let widths: Vec<usize> = queries.iter().map(|q| case.widths(*q)[which]).collect();
        let record = |(q, w): (&usize, &usize)| {
            let cells = case.cells(*q) as i32;
            [cells - 1, cells, cells / BLOCK as i32, *w as i32]
        };
        let records = device.upload(&queries.iter().zip(&widths).flat_map(record).collect::<Vec<_>>())?;
        let want: Vec<Vec<i32>> = (scores.chunks_exact(MAX_BLOCKS).zip(queries).zip(&widths))
            .map(|((row, q), w)| {
                let mut ids = vec![0; CAP];
                let found = top_k(row, case.cells(*q), *w, &mut ids);
                ids.truncate(found);
                ids
            })
            .collect();
        let mut poison = 0x3a;
        for (table, kernel, active_blocks) in &runs {
            poison ^= 0x5f;
            ids.fill(poison)?;
            let s = Selecting {
                scores: &scores_on,
                records: &records,
                ids: &ids,
                max_blocks: MAX_BLOCKS,
                cap: CAP,
                queries: n,
                active_blocks: *active_blocks,
            };
            match kernel {
                Some(k) => select_with(device, table, *k, &s)?,
                None => select(device, table, &s)?,
            }
            for (got, want) in ids.read()?.chunks_exact(CAP).zip(&want) {
                let bad = got.iter().zip(want).filter(|(a, b)| a != b).count();
                // nothing is written beyond the width
                let poisoned = i32::from_ne_bytes([poison; 4]);
                let beyond = got[want.len()..].iter().filter(|v| **v != poisoned).count();
                compared += want.len() as u64;
                differing += (bad + beyond) as u64;
            }
        }
    }
    Ok((compared, differing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{Order, ShimSide, open_ordered};

    fn totals(device: &Device) -> (u64, u64, u64) {
        let mut t = (0, 0, 0);
        qsa_topk_active_parity(device, false, &mut |c| {
            if c.differing > 0 {
                eprintln!("{} on {}: {} of {} differ", c.case, device.info().arch, c.differing, c.compared);
            }
            t = (t.0 + 1, t.1 + c.compared, t.2 + c.differing);
        })
        .unwrap();
        t
    }

    fn agrees(side: ShimSide, order: Order) {
        let Some(driver) = crate::testing::tools(open_ordered(side, order)) else { return };
        let (cases, compared, differing) = totals(&Device::new(driver).unwrap());
        assert!((cases, differing) == (21, 0) && compared > 100_000, "{cases} {compared} {differing}");
    }

    #[test]
    fn top_k_agrees_on_cuda() {
        agrees(ShimSide::Cuda, Order::Random(5));
    }

    #[test]
    fn top_k_agrees_on_gfx12() {
        agrees(ShimSide::Gfx12, Order::Forward);
    }

    #[test]
    fn top_k_agrees_on_gfx11() {
        agrees(ShimSide::Gfx11, Order::Reversed);
    }

    #[test]
    fn ties_taken_from_the_last_block_are_seen() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let case = TopkCase::all().into_iter().find(|c| c.mode == 1).expect("a case of equal scores");
        let broken = device.with_defines(&["STRATA_BROKEN"]);
        let (compared, differing) = run_case(&broken, &case, &[0], 0..1, false).unwrap();
        assert!(differing > compared / 2, "{differing} of {compared}");
        assert_eq!(run_case(&device, &case, &[0], 0..1, false).unwrap(), (compared, 0));
    }
}
