//! From rows to aligned reads.

/// One aligned read that covers some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where it starts in the file, a multiple of the block.
    pub offset: u64,
    /// Bytes asked for, a multiple of the block.
    pub len: usize,
    /// Bytes that must come: a file may end within the last block.
    pub need: usize,
    /// The rows it covers: `first..first + count` of the sorted list.
    pub first: usize,
    pub count: usize,
}

/// Cuts rows that start at `starts` (ascending, no two the same), each of `row_bytes`, into reads of at most `most` bytes. A row
/// alone may be longer than that. Rows in one block, and blocks side by side, share a read.
pub(crate) fn extents(starts: impl Iterator<Item = u64>, row_bytes: usize, block: u64, most: usize, out: &mut Vec<Extent>) {
    out.clear();
    for (i, start) in starts.enumerate() {
        let end = start + row_bytes as u64;
        let (from, to) = (start / block * block, end.next_multiple_of(block));
        if let Some(last) = out.last_mut()
            && from <= last.offset + last.len as u64
            && to - last.offset <= most as u64
        {
            last.len = last.len.max((to - last.offset) as usize);
            last.need = (end - last.offset) as usize;
            last.count += 1;
            continue;
        }
        out.push(Extent { offset: from, len: (to - from) as usize, need: (end - from) as usize, first: i, count: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(starts: &[u64], row: usize, block: u64, most: usize) -> Vec<Extent> {
        let mut out = Vec::new();
        extents(starts.iter().copied(), row, block, most, &mut out);
        out
    }

    #[test]
    fn rows_share_blocks_and_straddle_them() {
        assert_eq!(of(&[10, 200], 90, 512, 4096), [Extent { offset: 0, len: 512, need: 290, first: 0, count: 2 }]);
        // over the edge of a block
        assert_eq!(of(&[500], 90, 512, 4096), [Extent { offset: 0, len: 1024, need: 590, first: 0, count: 1 }]);
        // side by side, until the read is full
        let e = of(&[0, 512, 1024], 90, 512, 1024);
        assert_eq!((e.len(), e[0].count, e[1].offset), (2, 2, 1024));
        assert_eq!(of(&[0, 4096], 90, 512, 8192).len(), 2, "a gap is not read");
        assert_eq!(of(&[100], 5000, 512, 1024)[0].len, 5120, "a long row is one read");
    }

    proptest! {
        #[test]
        fn every_row_is_in_one_aligned_read(
            mut ids in prop::collection::vec(0u64..3000, 1..200), row in 1usize..700, shift in 0u64..5000, log in 9u32..13, blocks in 1usize..5,
        ) {
            ids.sort_unstable();
            ids.dedup();
            let (block, starts) = (1u64 << log, ids.iter().map(|i| shift + i * row as u64).collect::<Vec<_>>());
            let most = blocks << log;
            let all = of(&starts, row, block, most);
            let mut next = 0;
            for (i, e) in all.iter().enumerate() {
                prop_assert!(e.offset.is_multiple_of(block) && (e.len as u64).is_multiple_of(block) && e.need <= e.len && e.len - e.need < block as usize);
                prop_assert!(e.len <= most || e.count == 1);
                prop_assert_eq!(e.first, next);
                next += e.count;
                for s in &starts[e.first..next] {
                    prop_assert!(*s >= e.offset && s + row as u64 <= e.offset + e.need as u64);
                }
                prop_assert!(i == 0 || all[i - 1].offset <= e.offset);
            }
            prop_assert_eq!(next, starts.len());
        }
    }
}
