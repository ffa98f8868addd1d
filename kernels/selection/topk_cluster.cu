// Block top-k by a cluster of eight workgroups a query (sm_90 on).
#include "selection/topk.cuh"

#if STRATA_CUDA && STRATA_SM >= 900
#define PEERS 8u
#define BITS 11
#define BINS 2048u
#define PASSES 3
#define LISTED 4096u  // keys that are gathered in every workgroup rather than counted by the cluster

// One wave finds the digit of a pass from the histograms of all workgroups. `coarse` has the sums of 64 bins each, from the
// top. Leaves digit, cells above it and whole blocks of that digit in `found`.
DEVICE void topk_find_in_cluster(u32* bins, u32* coarse, u32* found, const TopkSearch& s, const TopkQuery& q) {
    u32 part[PEERS], count = 0u;
    UNROLL for (u32 r = 0; r < PEERS; r++) part[r] = cluster_shared(coarse, r)[lane()];
    UNROLL for (u32 r = 0; r < PEERS; r++) count += part[r];
    u32 top = BINS - 1u - 64u * lane();
    u32 after = s.above + BLOCK_CELLS * wave_scan(count), cells = after - BLOCK_CELLS * count;
    bool here = cells + topk_tail(s, q, top + 1u) < q.width && after + topk_tail(s, q, top - 63u) >= q.width;
    u32 chosen = 31u - leading_zeros(ballot(here));
    cells = lane_get(cells, chosen);

    u32 digit = BINS - 1u - 64u * chosen - 2u * lane();
    U2 pair[PEERS];
    UNROLL for (u32 r = 0; r < PEERS; r++) pair[r] = *(const U2*)(cluster_shared(bins, r) + digit - 1u);
    u32 counts[2] = {0u, 0u};
    UNROLL for (u32 r = 0; r < PEERS; r++) {
        counts[0] += pair[r].y;
        counts[1] += pair[r].x;
    }
    count = counts[0] + counts[1];
    cells += BLOCK_CELLS * (wave_scan(count) - count);
    UNROLL for (u32 i = 0; i < 2u; i++) {
        u32 over = cells + topk_tail(s, q, digit - i + 1u);
        cells += BLOCK_CELLS * counts[i];
        if (over < q.width && cells + topk_tail(s, q, digit - i) >= q.width) {
            found[0] = digit - i;
            found[1] = over;
            found[2] = counts[i];
        }
    }
}

// A query of fewer than `solo` whole blocks is done by the first workgroup alone.
template <int ROWS> DEVICE void topk_cluster(const f32* scores, const i32* steps, i32* ids, i32 max_blocks, i32 cap, i32 solo) {
    SHARED(u32, bins, [PASSES * BINS]);
    SHARED(u32, coarse, [PASSES * 32]);
    SHARED(u32, list, [LISTED]);
    SHARED(u32, peers, [PEERS][2]);  // of each workgroup: blocks on its list, blocks of larger keys
    SHARED(u32, waves, [2 * 32]);
    SHARED(u32, found, [4]);
    SHARED(u32, tally, [4]);  // my list, my larger blocks; then larger and tied ones on the lists before mine
    SHARED(u32, all_tied, [1]);
    u32 t = thread_x(), rank = cluster_rank();
    TopkQuery q = topk_query(scores, steps, ids, max_blocks, cap, block_y());
    if (topk_trivial(q, rank * 1024u + t, PEERS * 1024u)) return;
    HeldKeys<ROWS> keys;
    if (q.blocks < (u32)solo) {
        if (rank == 0u) topk_one<1024, BITS>(bins, waves, found, keys, q);
        return;
    }
    u32 rows = topk_rows(q, PEERS * 32u), my_wave = rank * 32u + wave();
    keys.load(q, my_wave, rows);
    UNROLL for (u32 i = 0; i < PASSES * BINS / 1024u; i++) bins[t + 1024u * i] = 0u;
    if (t < 4u) tally[t] = 0u;
    if (t == 0u) all_tied[0] = 0u;
    barrier();

    // digits, while many keys match
    TopkSearch s = topk_search<BITS>();
    u32 pass = 0u;
    for (;;) {
        u32* mine = bins + pass * BINS;
        keys.each([&](u32 key, u32) { topk_count(mine, topk_digit(s, key), s.mask); });
        barrier();
        U2 pair = *(const U2*)(mine + BINS - 2u - 2u * t);
        u32 sum = wave_sum(pair.x + pair.y);
        if (lane() == 0u) coarse[32u * pass + wave()] = sum;
        cluster_sync();
        if (wave() == 0u) topk_find_in_cluster(mine, coarse + 32u * pass, found, s, q);
        barrier();
        topk_take(s, found[0], found[1]);
        pass++;
        if (s.shift == 0u || found[2] <= LISTED) break;
        topk_next<BITS>(s);
        barrier();
    }

    // what is left becomes a list, unless it is known to be tied
    bool open = s.shift != 0u;
    u32 over = 0u, left = 0u, bar = s.prefix >> s.shift;
    keys.each([&](u32 key, u32) {
        over += key >> s.shift > bar;
        left += key >> s.shift == bar;
    });
    over = wave_sum(over);
    left = wave_sum(left);
    u32 at = 0u;
    if (lane() == 0u) {
        at = atomic_add_shared(&tally[0], left);
        atomic_add_shared(&tally[1], over);
    }
    if (open) {
        at = lane_get(at, 0);
        keys.each([&](u32 key, u32) {
            u32 listed = ballot(key >> s.shift == bar);
            if (key >> s.shift == bar) list[at + popcount_(listed & lanes_below())] = key;
            at += popcount_(listed);
        });
    }
    barrier();
    if (t < PEERS) {
        u32* to = cluster_shared(&peers[rank][0], t);
        to[0] = tally[0];
        to[1] = tally[1];
    }
    cluster_sync();

    u32 lists = 0u, lists_before = 0u, over_before = 0u;
    UNROLL for (u32 r = 0; r < PEERS; r++) {
        lists_before += r < rank ? peers[r][0] : 0u;
        over_before += r < rank ? peers[r][1] : 0u;
        lists += peers[r][0];
    }
    u32 tied_before = lists_before, tied = lists;
    if (open) {
        // every workgroup gathers all lists and finds the remaining digits alone
        HeldKeys<LISTED / 1024u> rest;
        rest.rows = (lists + 1023u) / 1024u;
        UNROLL for (u32 i = 0; i < LISTED / 1024u; i++) {
            u32 j = t + 1024u * i, owner = 0u, begin = 0u, end = 0u;
            UNROLL for (u32 r = 0; r < PEERS; r++) {
                if (j >= end) {
                    owner = r;
                    begin = end;
                }
                end += peers[r][0];
            }
            rest.key[i] = j < lists ? cluster_shared(list, owner)[j - begin] : 0u;
        }
        while (topk_next<BITS>(s)) {
            u32* mine = bins + pass * BINS;
            rest.each([&](u32 key, u32) { topk_count(mine, topk_digit(s, key), s.mask); });
            topk_find<1024, (int)BINS>(mine, waves, found, s, q);
            pass++;
        }
        u32 over_lists = 0u, tied_lists = 0u, tied_all = 0u;
        rest.each([&](u32 key, u32 i) {
            bool before = t + 1024u * i < lists_before;
            over_lists += before && key > s.prefix;
            tied_lists += before && key == s.prefix;
            tied_all += key == s.prefix;
        });
        over_lists = wave_sum(over_lists);
        tied_lists = wave_sum(tied_lists);
        tied_all = wave_sum(tied_all);
        if (lane() == 0u) {
            atomic_add_shared(&tally[2], over_lists);
            atomic_add_shared(&tally[3], tied_lists);
            atomic_add_shared(&all_tied[0], tied_all);
        }
        barrier();
        over_before += tally[2];
        tied_before = tally[3];
        tied = all_tied[0];
    }
    // the lists have been read, a barrier ago
    cluster_arrive_relaxed();
    TopkBefore before = topk_before<1024>(waves, keys, s.prefix);
    TopkTies ties = topk_ties(q, s, tied);
    before.over += over_before;
    before.tied += tied_before;
    topk_emit(q, keys, 32u * my_wave * rows + lane(), s.prefix, ties, before);
    if (rank == 0u && t == 0u) topk_emit_tail(q, s.prefix, ties, tied);
    // nobody leaves while its lists may be read
    cluster_wait();
}

// Up to 8,192 blocks for each key a thread holds.
KERNEL(1024) qsa_topk_cluster9(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap, i32 solo) {
    topk_cluster<9>(scores, steps, ids, max_blocks, cap, solo);
}
KERNEL(1024) qsa_topk_cluster17(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap, i32 solo) {
    topk_cluster<17>(scores, steps, ids, max_blocks, cap, solo);
}
#endif
