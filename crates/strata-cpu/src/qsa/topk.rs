//! The block top-k: the radix select of [`strata_ops::qsa::topk`], narrowed to its candidates after every pass.

use strata_ops::qsa::BLOCK;
use strata_ops::qsa::topk::{choose_digit, emit, order_key};

/// Keys looked at together when the ids are written.
const RUN: usize = 16;

/// Selects by the scores of blocks `0..=n_kv / 4`, as the definition does. `keys` and `rest` are working memory of
/// at least as many entries as there are scores.
#[inline(always)]
pub(crate) fn top_k(scores: &[f32], n_kv: usize, width: usize, ids: &mut [i32], keys: &mut [u32], rest: &mut [u32]) -> usize {
    if n_kv <= width {
        for (i, id) in ids[..n_kv].iter_mut().enumerate() {
            *id = i as i32;
        }
        return n_kv;
    }
    let n_bid = n_kv / BLOCK;
    let keys = &mut keys[..n_bid];
    for (k, s) in keys.iter_mut().zip(scores) {
        *k = order_key(*s);
    }
    let (tail, tail_cells) = (order_key(scores[n_bid]), (n_kv % BLOCK) as u32);
    let (mut prefix, mut above, mut left) = (0u32, 0u32, 0);
    for shift in [24u32, 16, 8, 0] {
        // two histograms: equal digits in a row do not wait for each other
        let mut bins = [[0u32; 256]; 2];
        let from = if shift == 24 { &*keys } else { &rest[..left] };
        let (pairs, odd) = from.as_chunks::<2>();
        for p in pairs {
            bins[0][(p[0] >> shift & 255) as usize] += BLOCK as u32;
            bins[1][(p[1] >> shift & 255) as usize] += BLOCK as u32;
        }
        for k in odd {
            bins[0][(k >> shift & 255) as usize] += BLOCK as u32;
        }
        let [mut sum, second] = bins;
        for (a, b) in sum.iter_mut().zip(&second) {
            *a += b;
        }
        // the tail is a candidate while its higher digits are the prefix
        if u64::from(tail ^ prefix) >> (shift + 8) == 0 {
            sum[(tail >> shift & 255) as usize] += tail_cells;
        }
        let (d, a) = choose_digit(&sum, above, width as u32);
        (prefix, above) = (prefix | d << shift, a);
        // keep the keys that have the digit; in place, for a key moves only to the front
        let n = from.len();
        left = 0;
        for i in 0..n {
            let k = if shift == 24 { keys[i] } else { rest[i] };
            rest[left] = k;
            left += usize::from(k >> shift & 255 == d);
        }
    }
    write_ids(keys, (tail, tail_cells), prefix, width as u32 - above, ids)
}

/// Ids of the blocks above the threshold, and of those at it while `equal` cells last, in ascending order.
#[inline(always)]
fn write_ids(keys: &[u32], tail: (u32, u32), threshold: u32, mut equal: u32, ids: &mut [i32]) -> usize {
    let mut at = 0;
    let mut take = |block: usize, key: u32, cells: u32| {
        let cells = if key == threshold { cells.min(equal) } else { cells };
        if key == threshold {
            equal -= cells;
        }
        if key >= threshold {
            emit(ids, &mut at, block, cells);
        }
    };
    let (runs, last) = keys.as_chunks::<RUN>();
    for (r, run) in runs.iter().enumerate() {
        // most runs hold nothing
        if run.iter().fold(false, |any, k| any | (*k >= threshold)) {
            for (i, k) in run.iter().enumerate() {
                take(r * RUN + i, *k, BLOCK as u32);
            }
        }
    }
    for (i, k) in last.iter().enumerate() {
        take(runs.len() * RUN + i, *k, BLOCK as u32);
    }
    take(keys.len(), tail.0, tail.1);
    at
}
