// Block top-k, what every variant shares (definition: strata_ops::qsa::topk).
//
// A radix select. Blocks are whole but for the tail, whose one key every thread holds: histograms count whole blocks, four
// cells each, and the tail is added where cells are compared. The digits are of any width, for the selection is a function
// of the multiset of keys. A lane without a block holds key 0, below the key of -inf: it is counted in bin 0 alone, where a
// search ends at the latest among real blocks, and it is never selected.
#pragma once
#include "side/side.cuh"

#define BLOCK_CELLS 4u

// Score as an integer that orders the same way: -0 and +0 are one key, NaN counts as 0.
DEVICE u32 order_key(f32 score) {
    f32 v = score + 0.0f;
    u32 bits = v != v ? 0u : bits_of(v);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

struct TopkQuery {
    const f32* scores;
    i32* ids;
    u32 cells, width;
    u32 blocks;                // whole ones
    u32 tail_cells, tail_key;  // the block after them
};
DEVICE TopkQuery topk_query(const f32* scores, const i32* steps, i32* ids, i32 max_blocks, i32 cap, u32 query) {
    TopkQuery q;
    q.scores = scores + (u64)query * (u32)max_blocks;
    q.ids = ids + (u64)query * (u32)cap;
    q.cells = (u32)steps[4 * query + 1];
    q.width = (u32)larger(steps[4 * query + 3], 0);
    q.blocks = q.cells / BLOCK_CELLS;
    q.tail_cells = q.cells % BLOCK_CELLS;
    q.tail_key = order_key(q.tail_cells ? q.scores[q.blocks] : 0.0f);
    return q;
}
// Whether all cells are selected, which are then written, or none.
DEVICE bool topk_trivial(const TopkQuery& q, u32 thread, u32 threads) {
    if (q.width >= q.cells) {
        for (u32 c = thread; c < q.cells; c += threads) q.ids[c] = (i32)c;
        return true;
    }
    return q.width == 0u;
}

// Rows of 32 blocks that one of `waves` waves takes.
DEVICE u32 topk_rows(const TopkQuery& q, u32 waves) { return ((q.blocks + 31u) / 32u + waves - 1u) / waves; }

// A wave's keys, a lane's block of each row, held in registers.
template <int ROWS> struct HeldKeys {
    u32 key[ROWS], rows;
    __device__ inline void load(const TopkQuery& q, u32 wave, u32 count) {
        u32 first = 32u * wave * count + lane(), end = smaller(q.blocks, 32u * (wave + 1u) * count), last = larger(q.blocks, 1u) - 1u;
        rows = count;
        // all loads are on their way before one is waited for; a lane past the end reads the last block
        f32 score[ROWS];
        UNROLL for (int g = 0; g < ROWS; g += 4)
            if ((u32)g < count) {
                UNROLL for (int i = g; i < g + 4 && i < ROWS; i++) score[i] = q.scores[smaller(first + 32u * (u32)i, last)];
            } else {
                UNROLL for (int i = g; i < g + 4 && i < ROWS; i++) score[i] = 0.0f;
            }
        UNROLL for (int i = 0; i < ROWS; i++) {
            u32 k = order_key(score[i]);
            key[i] = first + 32u * (u32)i < end ? k : 0u;
        }
    }
    // By fours: a condition a row would cost a register each.
    template <class F> __device__ inline void each(F f) const {
        UNROLL for (int g = 0; g < ROWS; g += 4)
            if ((u32)g < rows) {
                UNROLL for (int i = g; i < g + 4 && i < ROWS; i++) f(key[i], (u32)i);
            }
    }
};
// The same read anew each time, `ROWS` rows at once.
template <int ROWS> struct ReadKeys {
    const f32* scores;
    u32 first, rows, last;
    __device__ inline void load(const TopkQuery& q, u32 wave, u32 count) {
        first = 32u * wave * count + lane();
        scores = q.scores;
        rows = count;
        last = larger(q.blocks, 1u) - 1u;
    }
    template <class F> __device__ inline void each(F f) const {
        NO_UNROLL for (u32 i = 0; i < rows; i += ROWS) {
            f32 score[ROWS];
            UNROLL for (u32 j = 0; j < ROWS; j++) score[j] = scores[smaller(first + 32u * (i + j), last)];
            UNROLL for (u32 j = 0; j < ROWS; j++) f(i + j < rows && first + 32u * (i + j) <= last ? order_key(score[j]) : 0u, i + j);
        }
    }
};

// A radix search: the digits above `shift` are found.
struct TopkSearch {
    u32 prefix, shift, mask;
    u32 above;  // cells of larger keys than those that match the prefix
};
template <int BITS> DEVICE TopkSearch topk_search() { return TopkSearch{0u, 32u - BITS, (1u << BITS) - 1u, 0u}; }
// The digit of a key; more than the mask where the key does not match the prefix.
DEVICE u32 topk_digit(const TopkSearch& s, u32 key) { return (key ^ s.prefix) >> s.shift; }
// Cells of the tail if its key matches and its digit is at least `digit`.
DEVICE u32 topk_tail(const TopkSearch& s, const TopkQuery& q, u32 digit) {
    u32 x = topk_digit(s, q.tail_key);
    return x >= digit && x <= s.mask ? q.tail_cells : 0u;
}
DEVICE void topk_take(TopkSearch& s, u32 digit, u32 above) {
    s.prefix |= digit << s.shift;
    s.above = above;
}
// Goes on to the next digit; false after the last.
template <int BITS> DEVICE bool topk_next(TopkSearch& s) {
    u32 shift = s.shift > BITS ? s.shift - BITS : 0u;
    if (s.shift == 0u) return false;
    s.mask = (1u << (s.shift - shift)) - 1u;
    s.shift = shift;
    return true;
}

// Counts a row's keys. Lanes that add to one bin take turns on AMD, so a row of one digit is added at once; NVIDIA's
// increments of shared memory do so by themselves.
DEVICE void topk_count(u32* bins, u32 digit, u32 mask) {
#if STRATA_HIP
    u32 x = digit <= mask ? digit : mask + 1u, first = lane_read(x, 0);
    if (ballot(x != first) == 0u) {
        if (lane() == 0u && first <= mask) atomic_add_shared(&bins[first], 32u);
        return;
    }
#endif
    if (digit <= mask) atomic_add_shared(&bins[digit], 1u);
}

// Ends a pass: finds the largest digit with `width` cells at or above it from the counts in `bins`, which are cleared.
// `waves` has a word a wave, `found` two.
template <int THREADS, int BINS> DEVICE void topk_find(u32* bins, u32* waves, u32* found, TopkSearch& s, const TopkQuery& q) {
    constexpr u32 each = BINS / THREADS, wave_count = THREADS / 32;
    u32 count[each], sum = 0u, first = (u32)BINS - 1u - thread_x() * each;
    barrier_lds_loads();
    UNROLL for (u32 i = 0; i < each; i++) {
        count[i] = bins[first - i];
        bins[first - i] = 0u;
        sum += count[i];
    }
    u32 upto = wave_scan(sum);
    if (lane() == 31u) waves[wave()] = upto;
    barrier_lds_loads();
    u32 before = wave_sum(lane() < wave() ? waves[lane() % wave_count] : 0u);
    u32 cells = s.above + BLOCK_CELLS * (before + upto - sum);
    UNROLL for (u32 i = 0; i < each; i++) {
        u32 over = cells + topk_tail(s, q, first - i + 1u);
        cells += BLOCK_CELLS * count[i];
        if (over < q.width && cells + topk_tail(s, q, first - i) >= q.width) {
            found[0] = first - i;
            found[1] = over;
        }
    }
    barrier_lds_loads();
    topk_take(s, found[0], found[1]);
}

// The whole search of one workgroup.
template <int THREADS, int BITS, class Keys> DEVICE TopkSearch topk_select(u32* bins, u32* waves, u32* found, const Keys& keys, const TopkQuery& q) {
    TopkSearch s = topk_search<BITS>();
    UNROLL for (u32 i = 0; i < (1u << BITS) / THREADS; i++) bins[thread_x() + i * THREADS] = 0u;
    barrier_lds_loads();
    do {
        keys.each([&](u32 key, u32) { topk_count(bins, topk_digit(s, key), s.mask); });
        topk_find<THREADS, 1 << BITS>(bins, waves, found, s, q);
    } while (topk_next<BITS>(s));
    return s;
}

// Blocks whose key is the threshold fill what the larger ones leave, first cell first.
struct TopkTies { u32 budget, all; };  // cells
// How many of the first `x` tied cells are taken.
DEVICE u32 topk_taken(const TopkTies& t, u32 x) {
#if defined(STRATA_BROKEN)
    return larger(x, t.all - t.budget) - (t.all - t.budget);
#else
    return smaller(x, t.budget);
#endif
}

// Larger and tied blocks: before the wave at hand, and of ties in all waves.
struct TopkBefore { u32 over, tied, all_tied; };

// Counts over the waves of a workgroup; `sums` has two words a wave.
template <int THREADS, class Keys> DEVICE TopkBefore topk_before(u32* sums, const Keys& keys, u32 threshold) {
    constexpr u32 wave_count = THREADS / 32;
    u32 over = 0u, tied = 0u;
    keys.each([&](u32 key, u32) {
        over += key > threshold;
        tied += key == threshold;
    });
    over = wave_sum(over);
    tied = wave_sum(tied);
    if (lane() == 0u) {
        sums[wave()] = over;
        sums[wave_count + wave()] = tied;
    }
    barrier_lds_loads();
    u32 all = lane() < wave_count ? sums[wave_count + lane() % wave_count] : 0u;
    over = wave_sum(lane() < wave() ? sums[lane() % wave_count] : 0u);
    tied = wave_sum(lane() < wave() ? all : 0u);
    return TopkBefore{over, tied, wave_sum(all)};
}

// Writes the cells of a wave's selected blocks; `first` is the lane's block of row 0.
template <class Keys> DEVICE void topk_emit(const TopkQuery& q, const Keys& keys, u32 first, u32 threshold, const TopkTies& ties, TopkBefore at) {
    keys.each([&](u32 key, u32 row) {
        u32 overs = ballot(key > threshold), tied = ballot(key == threshold);
        if ((overs | tied) != 0u) {
            u32 x = BLOCK_CELLS * (at.tied + popcount_(tied & lanes_below())), from = topk_taken(ties, x);
            u32 n = key > threshold ? BLOCK_CELLS : key == threshold ? topk_taken(ties, x + BLOCK_CELLS) - from : 0u;
            i32* to = q.ids + (BLOCK_CELLS * (at.over + popcount_(overs & lanes_below())) + from);
            u32 cell = BLOCK_CELLS * (first + 32u * row);
            UNROLL for (u32 c = 0; c < BLOCK_CELLS; c++)
                if (c < n) to[c] = (i32)(cell + c);
            at.over += popcount_(overs);
            at.tied += popcount_(tied);
        }
    });
}
// The tail's cells, the last ones; one thread calls.
DEVICE void topk_emit_tail(const TopkQuery& q, u32 threshold, const TopkTies& ties, u32 tied_blocks) {
    u32 x = BLOCK_CELLS * tied_blocks;
    u32 n = q.tail_key > threshold ? q.tail_cells : q.tail_key == threshold ? topk_taken(ties, x + q.tail_cells) - topk_taken(ties, x) : 0u;
    for (u32 c = 0; c < n; c++) q.ids[q.width - n + c] = (i32)(BLOCK_CELLS * q.blocks + c);
}
DEVICE TopkTies topk_ties(const TopkQuery& q, const TopkSearch& s, u32 tied_blocks) {
    return TopkTies{q.width - s.above, BLOCK_CELLS * tied_blocks + (q.tail_key == s.prefix ? q.tail_cells : 0u)};
}

// A query by one workgroup, from keys to ids.
template <int THREADS, int BITS, class Keys> DEVICE void topk_one(u32* bins, u32* waves, u32* found, Keys& keys, const TopkQuery& q) {
    u32 rows = topk_rows(q, THREADS / 32);
    keys.load(q, wave(), rows);
    TopkSearch s = topk_select<THREADS, BITS>(bins, waves, found, keys, q);
    // the bins are free now
    TopkBefore at = topk_before<THREADS>(bins, keys, s.prefix);
    TopkTies ties = topk_ties(q, s, at.all_tied);
    topk_emit(q, keys, 32u * wave() * rows + lane(), s.prefix, ties, at);
    if (thread_x() == 0u) topk_emit_tail(q, s.prefix, ties, at.all_tied);
}
