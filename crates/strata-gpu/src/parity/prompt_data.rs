//! Data of the published prompt attention shapes: pools, selections and queries of one seed.

use super::attn_data::{HostPool, Side, permutation};
use half::f16;
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::kv::{KvKind, KvRows, RowKind};
use strata_ops::qsa::{BLOCK, GROUPS, HEAD_DIM, Q4_ROW};

/// KV heads and heads of the published shapes.
pub(crate) const KV_HEADS: usize = 2;
pub(crate) const HEADS: usize = 24;
/// (context, queries): long, every cell selected, the edge from all cells to a selection.
pub(crate) const SHAPES: [(usize, usize); 3] = [(32_768, 2_048), (1_500, 1_500), (2_100, 256)];
/// Cells of the widest selection, and row length of the id lists.
const WIDEST: usize = 2_051;
pub(crate) const CAP: usize = 2_052;
/// The most recent cells, which are always selected.
const RECENT: usize = 512;

/// One shape: rows in the order of cells for the CPU, queries, and what each attends to.
pub(crate) struct PromptData {
    pub kind: KvKind,
    k: Side,
    v: Side,
    pub table: Vec<i32>,
    pub q: Vec<f32>,
    /// `[queries][CAP]`
    pub ids: Vec<i32>,
    pub steps: Vec<i32>,
}

fn side(rng: &mut Rng, kind: RowKind, rows: usize) -> Side {
    let scale = |rng: &mut Rng| f16::from_f32(0.005 + 0.025 * rng.uniform()).to_bits();
    match kind {
        RowKind::Int8 => {
            let codes = (0..rows * HEAD_DIM).map(|_| (rng.below(255) as i32 - 127) as i8).collect();
            Side::Int8(codes, (0..rows * GROUPS).map(|_| scale(rng)).collect())
        }
        RowKind::Q4_0 => {
            let mut bytes: Vec<u8> = (0..rows * Q4_ROW).map(|_| rng.bits() as u8).collect();
            for block in bytes.as_chunks_mut::<18>().0 {
                // of the size that makes values like those of int8 rows
                block[..2].copy_from_slice(&f16::from_f32(16.0 * f16::from_bits(scale(rng)).to_f32()).to_bits().to_le_bytes());
            }
            Side::Q4(bytes)
        }
        RowKind::F16 | RowKind::F32 => Side::F16((0..rows * HEAD_DIM).map(|_| f16::from_f32(rng.normal()).to_bits()).collect()),
    }
}

impl PromptData {
    /// `seed` is the published 1234 and the format's number.
    pub fn new(kind: KvKind, ctx: usize, nq: usize) -> PromptData {
        let format = match kind {
            KvKind::F16 | KvKind::F32 => 0,
            KvKind::Int8 => 1,
            KvKind::Q4_0 => 2,
            KvKind::K8V4 => 3,
        };
        let mut rng = Rng::new(1_234 + format);
        let pages = ctx.div_ceil(BLOCK);
        let rows = pages * BLOCK * KV_HEADS;
        let (k, v) = (side(&mut rng, kind.keys(), rows), side(&mut rng, kind.values(), rows));
        let table = permutation(&mut rng, pages);
        let q = rng.normals(nq * HEADS * HEAD_DIM, 2.0);
        let (ids, steps) = selections(&mut rng, ctx, nq);
        PromptData { kind, k, v, table, q, ids, steps }
    }

    pub fn queries(&self) -> usize {
        self.steps.len() / 4
    }

    /// The cells of query i.
    pub fn cells(&self, i: usize) -> &[i32] {
        &self.ids[i * CAP..][..self.steps[4 * i + 3] as usize]
    }

    /// Rows in the order of cells.
    pub fn rows(&self) -> KvRows<'_> {
        KvRows { k: self.k.rows(), v: self.v.rows(), kv_heads: KV_HEADS }
    }

    /// The same rows, pages where the table has them.
    pub fn paged(&self) -> HostPool {
        let side = |s: &Side| match s {
            Side::F16(x) => Side::F16(self.moved(x, HEAD_DIM)),
            Side::Int8(codes, scales) => Side::Int8(self.moved(codes, HEAD_DIM), self.moved(scales, GROUPS)),
            Side::Q4(x) => Side::Q4(self.moved(x, Q4_ROW)),
        };
        HostPool { kind: self.kind, kv_heads: KV_HEADS, k: side(&self.k), v: side(&self.v), table: self.table.clone() }
    }

    fn moved<T: Copy>(&self, x: &[T], row: usize) -> Vec<T> {
        let page = BLOCK * KV_HEADS * row;
        let mut out = x.to_vec();
        for (from, to) in self.table.iter().enumerate() {
            out[*to as usize * page..][..page].copy_from_slice(&x[from * page..][..page]);
        }
        out
    }
}

/// All cells up to the widest selection; beyond it the most recent 512 and 1,539 older ones, of which about 3% change from
/// query to query.
fn selections(rng: &mut Rng, ctx: usize, nq: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut ids, mut steps) = (vec![i32::MAX; nq * CAP], Vec::with_capacity(4 * nq));
    let older = WIDEST - RECENT;
    let (mut chosen, mut taken) = (Vec::<usize>::new(), vec![false; ctx]);
    for (i, row) in ids.chunks_exact_mut(CAP).enumerate() {
        let n_kv = ctx - nq + i + 1;
        let width = n_kv.min(WIDEST);
        steps.extend([n_kv as i32 - 1, n_kv as i32, (n_kv / BLOCK) as i32, width as i32]);
        if n_kv <= WIDEST {
            row.iter_mut().zip(0..n_kv).for_each(|(r, c)| *r = c as i32);
            continue;
        }
        let limit = n_kv - RECENT;
        let mut draw = |taken: &mut Vec<bool>| loop {
            let c = rng.below(limit);
            if !std::mem::replace(&mut taken[c], true) {
                return c;
            }
        };
        if chosen.is_empty() {
            chosen = (0..older).map(|_| draw(&mut taken)).collect();
        } else {
            for j in 0..older * 3 / 100 {
                let slot = (i * 47 + j * 31) % older;
                // where all older cells are chosen there is nothing to change to
                if limit > older {
                    let new = draw(&mut taken);
                    taken[std::mem::replace(&mut chosen[slot], new)] = false;
                }
            }
        }
        let cells = (0..limit).filter(|c| taken[*c]).chain(limit..n_kv);
        row.iter_mut().zip(cells).for_each(|(r, c)| *r = c as i32);
    }
    (ids, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_ascending_and_of_the_published_width() {
        for (ctx, nq) in [(4_000, 40), (2_100, 60), (300, 3)] {
            let (ids, steps) = selections(&mut Rng::new(3), ctx, nq);
            for (i, row) in ids.chunks_exact(CAP).enumerate() {
                let n_kv = ctx - nq + i + 1;
                let width = steps[4 * i + 3] as usize;
                assert_eq!(width, n_kv.min(WIDEST));
                assert!(row[..width].is_sorted_by(|a, b| a < b) && row[width - 1] as usize == n_kv - 1);
            }
        }
    }
}
