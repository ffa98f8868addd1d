//! Products with stacks of experts.

use super::Matrix;
use super::kernel::{Output, RowMap, Tile};
use super::product::{Grid, check, grain, moved};
use crate::pool::Pool;
use strata_ops::matmul::Acts;

/// Items that one expert works on: `start..end` of the item lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroup {
    pub expert: u32,
    pub start: u32,
    pub end: u32,
}

/// A stack of experts and where its products go.
pub struct ExpertStack<'a> {
    /// The experts' matrices one below the other.
    pub w: &'a Matrix,
    /// Rows of one expert.
    pub rows: usize,
    /// `[.., rows]`.
    pub out: &'a mut [f32],
}

/// A stack in a job.
#[derive(Clone, Copy)]
struct Part<'a> {
    w: &'a Matrix,
    rows: usize,
    out: Output,
    grid: Grid,
}

/// Stacks in one job at most.
const MAX_STACKS: usize = 4;

/// For every stack, every group and every item i of the group: `out[out_rows[i]] = W_expert acts[act_rows[i]]`, all in
/// one job of the pool.
///
/// # Panics
/// If a stack does not fit `acts`, there are more than four stacks, a group, expert or row is out of range, or two
/// items of the groups have the same output row.
pub fn matmul_experts(
    pool: &Pool,
    stacks: &mut [ExpertStack<'_>],
    groups: &[ExpertGroup],
    act_rows: &[u32],
    out_rows: &[u32],
    acts: &Acts,
) {
    assert!(stacks.len() <= MAX_STACKS, "{} stacks of experts", stacks.len());
    let items = groups.iter().map(|g| g.end.saturating_sub(g.start) as usize).sum::<usize>();
    let (mut work, mut outputs) = (0, 0);
    let mut parts = [None; MAX_STACKS];
    for (part, stack) in parts.iter_mut().zip(stacks.iter_mut()) {
        check(stack.w, acts, 0);
        work += items * stack.rows * stack.w.cols;
        outputs += items * stack.rows;
        *part = Some((stack.w, stack.rows, Output::new(stack.out, stack.rows)));
    }
    for g in groups {
        assert!(
            g.start <= g.end && g.end as usize <= act_rows.len() && g.end as usize <= out_rows.len(),
            "items {} to {} of an expert",
            g.start,
            g.end
        );
        for i in g.start..g.end {
            let row = act_rows[i as usize] as usize;
            assert!(row < acts.max_rows(), "activation row {row} of {}", acts.max_rows());
        }
        for stack in stacks.iter() {
            assert!((g.expert as usize + 1) * stack.rows <= stack.w.rows, "expert {} of {} rows", g.expert, stack.w.rows);
        }
    }
    check_distinct(stacks, groups, out_rows);
    let grain = grain(pool, work, moved(acts, items, outputs));
    // every group is cut alike, by the average group: tasks of large groups take longer, and the pool evens that out
    let typical = items.div_ceil(groups.len().max(1));
    let parts =
        parts.map(|p| p.map(|(w, rows, out)| Part { w, rows, out, grid: Grid::new(rows, typical, w.cols, grain.unwrap_or(usize::MAX)) }));
    let per_group: usize = parts.iter().flatten().map(|p| p.grid.row_tiles()).sum();
    let task = |t: usize, _worker: usize| {
        let group = groups[t / per_group];
        let group_items = group.start as usize..group.end as usize;
        let mut t = t % per_group;
        for part in parts.iter().flatten() {
            if t >= part.grid.row_tiles() {
                t -= part.grid.row_tiles();
                continue;
            }
            let first = group.expert as usize * part.rows;
            let rows = part.grid.row_tile(t);
            for i in 0..part.grid.item_tiles(group_items.len()) {
                let tile = Tile {
                    acts,
                    rows: first + rows.start..first + rows.end,
                    first,
                    items: part.grid.item_tile(i, group_items.clone()),
                    act_rows: RowMap::List(act_rows),
                    out_rows: RowMap::List(out_rows),
                    out: part.out,
                };
                // SAFETY: the matrix picked its kernel with its layout; rows were checked above; output rows are
                // distinct and the row tiles of a group do not overlap; the outputs are borrowed for the whole call.
                unsafe { (part.w.kernel)(part.w, &tile) };
            }
            return;
        }
    };
    let total = groups.len() * per_group;
    match grain {
        Some(_) => pool.run(total, &task),
        None => (0..total).for_each(|t| task(t, 0)),
    }
}

/// Panics if two items share an output row: each item leaves its number in its row, then looks whether it is still
/// there. This needs no memory, and the rows are about to be written anyway.
fn check_distinct(stacks: &mut [ExpertStack<'_>], groups: &[ExpertGroup], out_rows: &[u32]) {
    let Some(stack) = stacks.iter_mut().find(|s| s.rows > 0) else { return };
    let places = || groups.iter().flat_map(|g| &out_rows[g.start as usize..g.end as usize]).zip(0u32..);
    for (row, number) in places() {
        stack.out[*row as usize * stack.rows] = f32::from_bits(number);
    }
    for (row, number) in places() {
        assert!(stack.out[*row as usize * stack.rows].to_bits() == number, "two items write output row {row}");
    }
}
