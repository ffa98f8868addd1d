// The exact block scorer of prompts: 32 queries x `per_group` blocks a workgroup.
//
// Four lanes share a query. Lane j holds, for all four heads, the query's 16-byte groups j + {0, 16, 8, 24, 4, 20, 12, 28}
// in registers and builds c_j = the tree's levels 16, 8 and 4 alone; levels 2 and 1 are exchanges among the four. Keys pass
// through shared memory in tiles of 16, one being filled while the other is used; all eight queries of a wave read the
// same 64 bytes. Blocks n_bid are the tail kernel's.
//
// 16,400 bytes of shared memory (published: 25,344) and on gfx1201 201 registers (175), since the eight groups of a key are read
// before the first is used; nothing spills. Of 740 instructions for four keys and a query 512 are products, so 69% of the FMA
// rate is the ceiling.
#include "selection/scores.cuh"

constexpr u32 TILE = 16, THREADS = 128;
#if STRATA_HIP
#define KEY_LOOP NO_UNROLL
#else
#define KEY_LOOP UNROLL
#endif

// The order in which lane j adds its groups.
template <int i> struct Group { static constexpr u32 value = ((i & 1) ? LEVEL_16 : 0) + ((i & 2) ? LEVEL_8 : 0) + ((i & 4) ? 4 : 0); };

// c_j of a key for the four heads.
template <int first, int count> struct Tree {
    static __device__ inline void sum(f32 (&c)[4], const F4* key, const F4 (&query)[4][8]) {
        f32 other[4];
        Tree<first, count / 2>::sum(c, key, query);
        Tree<first + count / 2, count / 2>::sum(other, key, query);
        UNROLL for (int h = 0; h < 4; h++) c[h] = c[h] + other[h];
    }
};
template <int first> struct Tree<first, 1> {
    static __device__ inline void sum(f32 (&c)[4], const F4* key, const F4 (&query)[4][8]) {
        F4 k = key[Group<first>::value];
        UNROLL for (int h = 0; h < 4; h++) c[h] = chain(k, query[h][first]);
    }
};

// Starts copying a tile's keys; those from `end` on repeat the last one.
DEVICE void fetch_tile(F4 (*tile)[32], const f32* RESTRICT pooled, i32 first, i32 end) {
    UNROLL for (u32 i = 0; i < TILE * 32 / THREADS; i++) {
        u32 at = thread_x() + i * THREADS, key = at >> 5;
        i32 b = first + (i32)key;
        b = b < end ? b : end - 1;
        async_copy16(&tile[key][at & 31u], pooled + (u64)b * INDEX_DIM + 4 * (at & 31u));
    }
    async_commit();
}

// Lane j of four has head j of four keys; it ends with the sum over heads, in their order, of key j.
DEVICE f32 sum_of_heads(const f32 (&d)[4]) {
    bool odd = lane() & 1u, upper = lane() & 2u;
    f32 e0 = odd ? d[1] : d[0], e1 = odd ? d[0] : d[1], e2 = odd ? d[3] : d[2], e3 = odd ? d[2] : d[3];
    // key j ^ x goes to lane j ^ x: r_x is head j ^ x of key j
    f32 r0 = upper ? e2 : e0, r1 = lane_xor<1>(upper ? e3 : e1), r2 = lane_xor<2>(upper ? e0 : e2),
        r3 = lane_xor<1>(lane_xor<2>(upper ? e1 : e3));
    f32 first = (upper ? r2 : r0) + (upper ? r3 : r1), even = upper ? r0 : r2, other = upper ? r1 : r3;
    return (first + (odd ? other : even)) + (odd ? even : other);
}

KERNEL_OCC(128, 3) qsa_scores_thread(const f32* RESTRICT pooled, const f32* RESTRICT q, const StepRecord* RESTRICT records,
                                     f32* RESTRICT scores, i32 max_blocks, i32 queries, i32 per_group) {
    SHARED(F4, tile, [2][TILE][32]);
    SHARED(i32, tops, [THREADS / 32]);
    u32 j = lane() & 3u, row = block_x() * 32 + (thread_x() >> 2);
    bool live = row < (u32)queries;
    u32 mine = live ? row : (u32)queries - 1;
    i32 n = live ? smaller(records[mine].n_bid, max_blocks) : 0;
    i32 widest = wave_max(n);
    if (lane() == 0) tops[wave()] = widest;
    barrier();
    i32 top = larger(larger(tops[0], tops[1]), larger(tops[2], tops[3])), first = (i32)block_y() * per_group;
    if (first >= top) return;
    i32 end = smaller(first + per_group, top);
    fetch_tile(tile[0], pooled, first, end);
    F4 query[4][8];
    UNROLL for (u32 h = 0; h < 4; h++) {
        // slot h holds head h ^ j, so that lane j ends with head j
        const f32* p = q + (u64)mine * QUERY_DIM + (h ^ j) * INDEX_DIM + 4 * j;
        query[h][0] = load_f4(p + 4 * Group<0>::value);
        query[h][1] = load_f4(p + 4 * Group<1>::value);
        query[h][2] = load_f4(p + 4 * Group<2>::value);
        query[h][3] = load_f4(p + 4 * Group<3>::value);
        query[h][4] = load_f4(p + 4 * Group<4>::value);
        query[h][5] = load_f4(p + 4 * Group<5>::value);
        query[h][6] = load_f4(p + 4 * Group<6>::value);
        query[h][7] = load_f4(p + 4 * Group<7>::value);
    }
    f32* out = scores + (u64)mine * (u32)max_blocks;
    u32 turn = 0;
    NO_UNROLL for (i32 at = first; at < end; at += TILE) {
        async_wait<0>();
        barrier();  // the tile is there, and nobody reads the other one
        if (at + (i32)TILE < end) fetch_tile(tile[turn ^ 1], pooled, at + TILE, end);
        NO_UNROLL for (u32 g = 0; g < TILE; g += 4) {
            f32 d[4] = {};  // of this lane's head
            // not unrolled on AMD, where the compiler would read all keys ahead, for 50 more registers
            KEY_LOOP for (u32 k = 0; k < 4; k++) {
                f32 c[4];
                Tree<0, 8>::sum(c, &tile[turn][g + k][j], query);
                f32 r = relu(halve<1>(halve<2>(c[0], c[2]), halve<2>(c[1], c[3])));
                UNROLL for (u32 i = 0; i < 4; i++) d[i] = i == k ? r : d[i];
            }
            f32 s = sum_of_heads(d);
            i32 block = at + (i32)(g + j);
            if (block < n && block < end) out[block] = s;
        }
        turn ^= 1;
    }
}
