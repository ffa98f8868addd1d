//! `qsa_select_bench`: a prompt's scores and top-k in one run.

use super::qsa_scores::{Data, qsa_scores_bench};
use super::qsa_topk::{CAP, qsa_topk_bench};
use crate::device::Device;
use crate::error::Result;
use crate::selection::scores::Scorer;

/// Context, queries, repetitions, capacity.
const DEFAULTS: [usize; 4] = [131_072, 256, 10, 262_144];

/// The scorers and top-k kernels of one shape, each compared with the exact one by bits or, on matrix units, judged by FP64; then how
/// many queries would select other cells by the latter's scores. Numbers: context, queries, repetitions, capacity.
pub(super) fn qsa_select_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let mut shape = if device.is_shim() { [2_048, 4, 1, 2_048] } else { DEFAULTS };
    numbers.iter().zip(&mut shape).for_each(|(n, s)| *s = (*n).max(1));
    let [ctx, queries, _, capacity] = shape;
    shape[3] = capacity.max(ctx);
    qsa_scores_bench(device, &shape, line)?;
    qsa_topk_bench(device, &shape, line)?;
    let mut data = Data::new(device, ctx, shape[3], queries, 1, true)?;
    let exact = data.selected(device, Scorer::Warp, CAP)?;
    for scorer in [Scorer::Bf16, Scorer::Tf32].into_iter().filter(|s| s.takes(device, queries)) {
        let other = data.selected(device, scorer, CAP)?;
        let differ = exact.chunks_exact(CAP).zip(other.chunks_exact(CAP)).filter(|(a, b)| a != b).count();
        line(format!("  {scorer:?}: {differ} of {queries} selections differ"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bench_runs_and_exact_kernels_agree() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        assert!(qsa_select_bench(&device, &[3, 8], &mut |_| ()).is_err(), "more queries than cells");
        let mut lines = Vec::new();
        qsa_select_bench(&device, &[515, 2, 1, 600], &mut |l| lines.push(l)).unwrap();
        assert!(lines.iter().filter(|l| l.contains("of 2 selections differ")).count() == 2, "{lines:?}");
        assert!(lines.iter().all(|l| !l.contains("differing") || l.contains(" 0 differing")), "{lines:?}");
    }
}
