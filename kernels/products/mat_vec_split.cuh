// Mat-vec of one column, or of up to four, with four lanes a wide block: one result with mat_vec.cuh, since sums inside a block are
// integers. Lanes of a wave are eight neighbouring rows times four: four lanes share each wide block and take two of its parts
// each, for every column; of narrow blocks each lane has one, of four chains. So a wave owns one chain of wide blocks and a
// workgroup the four of eight rows, or two waves the eight of narrow ones. Of four columns of wide blocks each of the four lanes
// ends with the sums of one. Waves wait for each other for the table and the sum of the chains only, and every load that can go
// is under way before the first wait.
#pragma once
#include "products/mat_vec.cuh"

template <class F, int COLS> struct Split {
    static constexpr u32 LANES = F::WIDTH == 256 ? 4u : 1u;           // that share a block
    static constexpr int PARTS = (int)(F::PARTS / LANES);             // of a lane
    static constexpr int OWN = LANES == 1 ? COLS : 1;                 // columns whose chains a lane adds to
    static constexpr u32 SCALES = LANES == 1 ? F::WIDTH / 32u : 1u;   // of the activations, a block
    static constexpr u32 WAVE_CHAINS = 4u / LANES, WAVES = F::CHAINS / WAVE_CHAINS;  // chains of a wave, waves of eight rows
    static constexpr bool LARGE = sizeof(typename F::Part) * (LANES == 1 ? PARTS : 1) > 16;
    static constexpr int EACH = LANES == 1 && !LARGE && COLS == 1 ? 2 : 1;  // rows of a thread
    static constexpr u32 APART = 4u / WAVES * GROUP_ROWS, ROWS = APART * EACH;  // between a thread's rows, and rows of a workgroup
    static constexpr u32 STEP = F::CHAINS * GROUP_ROWS * F::BYTES;    // bytes of a full step of the layout
    static constexpr bool SUMS = F::MINIMA && LANES > 1 && COLS > 1;  // of the activations' parts, in shared memory
    // Waves of the same chains: of one column each has its own copy of the activations and waits for no other.
    static constexpr u32 SHARERS = COLS == 1 ? 1u : 4u / WAVES;
    // Groups a multiprocessor holds: with 7, ten experts of 640 rows, or of 2560 narrow ones, are all at work at one time.
#if STRATA_CUDA && STRATA_SM < 800  // whose code takes more registers
    static constexpr int HELD = COLS == 1 && !LARGE ? 5 : 4;
#elif STRATA_CUDA && (STRATA_SM == 800 || STRATA_SM == 1000)  // a few more
    static constexpr int HELD = COLS == 1 ? (LARGE ? 5 : 6) : LARGE || (F::MINIMA && LANES == 1) ? 4 : 5;
#else
    static constexpr int HELD = COLS == 1 ? (LARGE ? 5 : 7) : LARGE ? 4 : 5;
#endif
    static_assert(COLS == 1 || COLS == 4);
};
// A lane's share of a block, with what it needs of the activations but what lies in shared memory.
template <class F, int COLS> struct Share {
    typename F::Raw head[Split<F, COLS>::EACH];
    typename F::Part part[Split<F, COLS>::EACH][Split<F, COLS>::PARTS];
    f32 scale[Split<F, COLS>::SCALES][Split<F, COLS>::OWN];
    i32 sum[Split<F, COLS>::PARTS][Split<F, COLS>::OWN];  // where there are minima
};
template <class F, int COLS> using SplitChains = f32[Split<F, COLS>::EACH][Split<F, COLS>::OWN];
// Where a lane's blocks lie. Steps that hold a block of every chain have their pieces at distances that the compiler knows.
template <class F, int COLS> struct SplitWalk {
    const u8* group[2];  // of eight rows
    u32 slot;
    const f32* scales[Split<F, COLS>::OWN];  // of the chain's first block
    const i32* sums[Split<F, COLS>::OWN];
};
template <class F, int COLS> DEVICE void load_share(Share<F, COLS>& to, const SplitWalk<F, COLS>& k, u32 step, u32 count, u32 slot, u32 q) {
    typedef Split<F, COLS> S;
    UNROLL for (int t = 0; t < S::OWN; t++) {
        UNROLL for (u32 j = 0; j < S::SCALES; j++) to.scale[j][t] = k.scales[t][step * S::SCALES + j];
    }
    UNROLL for (int i = 0; i < S::EACH; i++) {
        const Place at = {k.group[i] + step * S::STEP, count, slot};
        to.head[i] = F::raw(at);
        UNROLL for (int j = 0; j < S::PARTS; j++) to.part[i][j] = F::load(at, j * (int)S::LANES + (int)q);
    }
    if constexpr (F::MINIMA && !S::SUMS) {
        UNROLL for (int j = 0; j < S::PARTS; j++) {
            UNROLL for (int t = 0; t < S::OWN; t++) to.sum[j][t] = k.sums[t][step * F::PARTS + (u32)j * S::LANES];
        }
    }
}
template <class F, int COLS> DEVICE void load_full(Share<F, COLS>& to, const SplitWalk<F, COLS>& k, u32 step, u32 q) {
    load_share<F>(to, k, step, F::CHAINS * GROUP_ROWS, k.slot, q);
}
// What is in shared memory of the columns, from some block on.
template <int COLS> struct SplitActs {
    const u8* codes[COLS];
    const i32* sums;  // of the lane's column
    u32 live;
};
template <class F, int COLS> DEVICE SplitActs<COLS> acts_from(const SplitActs<COLS>& a, u32 block) {
    SplitActs<COLS> r;
    UNROLL for (int t = 0; t < COLS; t++) r.codes[t] = a.codes[t] + block * F::WIDTH;
    r.sums = a.sums + block * F::PARTS, r.live = a.live;
    return r;
}
// Sums over the four lanes of a block; of four columns lane q gets column q.
DEVICE void sum_lanes(i32 (&sum)[1], u32) { sum[0] += lane_xor<8>(sum[0]), sum[0] += lane_xor<16>(sum[0]); }
DEVICE void sum_lanes(i32 (&sum)[4], u32 q) {
    const bool high = (q & 2u) != 0u, odd = (q & 1u) != 0u;
    const i32 even = (high ? sum[2] : sum[0]) + lane_xor<16>(high ? sum[0] : sum[2]);
    const i32 next = (high ? sum[3] : sum[1]) + lane_xor<16>(high ? sum[1] : sum[3]);
    sum[0] = (odd ? next : even) + lane_xor<8>(odd ? even : next);
}
template <class F> DEVICE i32 sub_scale(const typename F::Head& head, const typename F::Part& part, int j, u32 q, int half) {
    if constexpr (F::PART_SCALES) return F::part_scale(part);
    else return F::scale4(head, j, q, half);
}
// c + two minima times two sums of 16 codes.
DEVICE i32 pair_times(i32 first, i32 second, u32 sums, i32 c) { return first * (i32)(i16)sums + second * ((i32)sums >> 16) + c; }
// Adds a block to the chains of its rows.
template <class F, int COLS>
DEVICE void add_share(SplitChains<F, COLS>& chain, const Share<F, COLS>& b, const SplitActs<COLS>& acts, u32 q, const u32* table) {
    typedef Split<F, COLS> S;
    constexpr bool HALVES = F::TERMS == 2 * F::PARTS;  // a term for half a part
    typename F::Head head[S::EACH];
    UNROLL for (int i = 0; i < S::EACH; i++) head[i] = F::opened(b.head[i]);
    i32 isum[S::EACH][COLS] = {}, least = 0;
    UNROLL for (int j = 0; j < S::PARTS; j++) {
        UNROLL for (int i = 0; i < S::EACH; i++) {
            u32 w[8];
            F::decode(b.part[i][j], 0, w, table);
            UNROLL for (int pair = 0; pair < COLS; pair += 2) {
                if (pair > 0 && acts.live <= 2u) continue;
                UNROLL for (int t = pair; t < pair + 2 && t < COLS; t++) {
                    const U4* a = (const U4*)(acts.codes[t] + 32u * (S::LANES * (u32)j + q));
                    const U4 x = a[0], y = a[1];
                    i32 first = dot4(w[0], x.x, 0);
                    first = dot4(w[1], x.y, first), first = dot4(w[2], x.z, first), first = dot4(w[3], x.w, first);
                    i32 second = F::SUBS == 2 || HALVES ? 0 : first;
                    second = dot4(w[4], y.x, second), second = dot4(w[5], y.y, second);
                    second = dot4(w[6], y.z, second), second = dot4(w[7], y.w, second);
                    if constexpr (F::TERMS > 1) {
                        if constexpr (HALVES) {
                            chain[i][t] = fma_(F::term(head[i], 2 * j) * b.scale[j][t], float_of_int(first), chain[i][t]);
                            chain[i][t] = fma_(F::term(head[i], 2 * j + 1) * b.scale[j][t], float_of_int(second), chain[i][t]);
                        } else {
                            chain[i][t] = fma_(F::term(head[i], j) * b.scale[j][t], float_of_int(second), chain[i][t]);
                        }
                    } else if constexpr (F::SUBS == 0) {
                        isum[i][t] += second;
                    }
                    if constexpr (F::SUBS == 1) isum[i][t] += sub_scale<F>(head[i], b.part[i][j], j, q, 0) * second;
                    if constexpr (F::SUBS == 2) isum[i][t] += F::scale4(head[i], j, q, 0) * first + F::scale4(head[i], j, q, 1) * second;
                }
            }
        }
        if constexpr (F::MINIMA_16 && !S::SUMS)
            least = pair_times(F::minimum4(head[0], j, q, 0), F::minimum4(head[0], j, q, 1), (u32)b.sum[j][0], least);
        else if constexpr (F::MINIMA && S::LANES > 1 && !S::SUMS) least += F::minimum4(head[0], j, q) * b.sum[j][0];
    }
    if constexpr (F::TERMS > 1) return;
    if constexpr (S::LANES > 1) sum_lanes(isum[0], q);
    if constexpr (S::SUMS) {
        const U4 low = ((const U4*)acts.sums)[0], high = ((const U4*)acts.sums)[1];
        const u32 s[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        UNROLL for (int part = 0; part < 8; part++) {
            if constexpr (F::MINIMA_16) least = pair_times(F::minimum(head[0], part, 0), F::minimum(head[0], part, 1), s[part], least);
            else least += F::minimum(head[0], part) * (i32)s[part];
        }
    } else if constexpr (F::MINIMA && S::LANES > 1) {
        least += lane_xor<8>(least), least += lane_xor<16>(least);
    }
    UNROLL for (int i = 0; i < S::EACH; i++) {
        UNROLL for (int t = 0; t < S::OWN; t++) chain[i][t] = fma_(F::term(head[i], 0) * b.scale[0][t], float_of_int(isum[i][t] >> F::SHIFT), chain[i][t]);
    }
    if constexpr (F::MINIMA && S::LANES > 1) {
        chain[0][0] = fma_(-(F::dmin(head[0]) * b.scale[0][0]), float_of_int(least), chain[0][0]);
    } else if constexpr (F::MINIMA) {
        UNROLL for (int i = 0; i < S::EACH; i++) {
            UNROLL for (int t = 0; t < S::OWN; t++)
                chain[i][t] = fma_(-(F::dmin(head[i]) * b.scale[0][t]), float_of_int(b.sum[0][t]), chain[i][t]);
        }
    }
}

// Asynchronous copies go before the weights' loads, which wait for the expert's number; others would hold these up.
#if STRATA_CUDA && STRATA_SM >= 800
#define SPLIT_STAGES_FIRST 1
#else
#define SPLIT_STAGES_FIRST 0
#endif
// Distance of columns of part sums in shared memory: an odd multiple of 16 bytes, so that lanes of four columns meet in few banks.
template <class F> DEVICE u32 sums_apart(u32 blocks) { return blocks * F::PARTS + 4u; }
// Activations of the wave's chains for `live` columns, or its part of what it shares, and the table, which all waves read.
template <class F, int COLS>
DEVICE void split_stage(u8* to, const i8* codes, const i32* sums, u32 first, u32 last, u32 blocks, u32 live, u32* table, const u32* values) {
    if constexpr (F::TABLE > 0) {
        UNROLL for (u32 i = 0; i < F::TABLE / 4u; i += MAT_VEC_THREADS) {
            if (i + thread_x() < F::TABLE / 4u) async_copy16((U4*)table + i + thread_x(), (const U4*)values + i + thread_x());
        }
    }
    typedef Split<F, COLS> S;
    constexpr u32 words = F::WIDTH / 16u, pairs = F::PARTS / 4u, stride = 32u * S::SHARERS;
    const u32 mine = lane() + (S::SHARERS > 1 ? wave() / S::WAVES * 32u : 0u);
    NO_UNROLL for (u32 t = 0; t < (COLS == 1 ? 1u : live); t++) {
        const u32 column = t * blocks * words;
        NO_UNROLL for (u32 i = first * words + mine; i < last * words; i += stride)
            async_copy16((U4*)to + column + i, (const U4*)codes + column + i);
        if constexpr (S::SUMS) {
            U4* sums_to = (U4*)(to + live * blocks * F::WIDTH) + t * (sums_apart<F>(blocks) / 4u);
            NO_UNROLL for (u32 i = first * pairs + mine; i < last * pairs; i += stride)
                async_copy16(sums_to + i, (const U4*)sums + t * blocks * pairs + i);
        }
    }
    async_commit();
}

// out[t][row] = W x_t. One column: with `experts`, W holds a matrix for each expert and the grid's y and z count the `share` experts of
// a column and the columns; `live` is the number of experts in all, an id below 0 writes nothing. Several columns: the grid's z
// counts groups of `share` of the `live` columns.
template <class F, int COLS>
DEVICE void mat_vec_split(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                          const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT experts,
                          u32 share, u32 live) {
    typedef Split<F, COLS> S;
    DYN_SHARED(u8, shared);
    i32 expert = 0;
    u32 x = 0, to = 0;  // the first column, and its row of `out`
    if constexpr (COLS > 1) {
        x = to = block_z() * share;
        live = smaller(share, live - x);
    } else if (experts) {
        x = block_z(), to = x * share + block_y();
        expert = to < live ? experts[to] : -1;
    }
    codes += (u64)x * blocks * F::WIDTH, scales += (u64)x * blocks * S::SCALES, sums += (u64)x * blocks * F::PARTS, out += (u64)to * out_stride;
    u32* table = (u32*)shared;
    f32* chains = (f32*)(shared + F::TABLE * 4u);
    const u32 copy = COLS == 1 ? blocks * F::WIDTH : live * (blocks * F::WIDTH + (S::SUMS ? sums_apart<F>(blocks) * 4u : 0u));
    u8* staged = shared + F::TABLE * 4u + COLS * F::CHAINS * S::ROWS * 4u + wave() / S::WAVES / S::SHARERS * copy;
    // the wave's chains low, low + 1, ...
    const u32 low = wave() % S::WAVES * S::WAVE_CHAINS;
    u32 begin, end, first, last;
    chain_range<F>(low, blocks, begin, end);
    if constexpr (S::WAVE_CHAINS > 1) {
        u32 start;
        chain_range<F>(low + S::WAVE_CHAINS - 1u, blocks, start, end);
    }
#if SPLIT_STAGES_FIRST
    split_stage<F, COLS>(staged, codes, sums, begin, end, blocks, live, table, values);
#endif
    if (expert < 0) {
        async_wait<0>();
        return;
    }
    const u32 r = lane() % GROUP_ROWS, fourth = lane() / GROUP_ROWS, own = wave() / S::WAVES * GROUP_ROWS + r;
    const u32 q = S::LANES > 1 ? fourth : 0u, c = S::LANES > 1 ? low : low + fourth, groups = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS;
    chain_range<F>(c, blocks, first, last);
    SplitWalk<F, COLS> walk;
    SplitActs<COLS> acts;
    // columns beyond the last repeat it
    walk.slot = c * GROUP_ROWS + r, acts.live = live;
    const u32 mine = COLS > 1 ? smaller(q, live - 1u) : 0u;
    acts.sums = (const i32*)(staged + live * blocks * F::WIDTH) + mine * sums_apart<F>(blocks);
    UNROLL for (int t = 0; t < S::OWN; t++)
        walk.scales[t] = scales + (S::OWN > 1 ? smaller((u32)t, live - 1u) : mine) * blocks * S::SCALES + first * S::SCALES;
    if constexpr (F::MINIMA) {
        UNROLL for (int t = 0; t < S::OWN; t++) {
            walk.sums[t] = sums + first * F::PARTS + q;
            if constexpr (S::OWN > 1) walk.sums[t] += smaller((u32)t, live - 1u) * blocks * F::PARTS;
        }
    }
    UNROLL for (int t = 0; t < COLS; t++) acts.codes[t] = staged + (t == 0 ? 0u : smaller((u32)t, live - 1u)) * blocks * F::WIDTH;
    UNROLL for (int i = 0; i < S::EACH; i++) {
        const u32 group = (block_x() * S::ROWS + (u32)i * S::APART) / GROUP_ROWS + wave() / S::WAVES;
        const u64 at = (u64)(u32)expert * groups + smaller(group, groups - 1u);  // rows beyond the end repeat the last
        walk.group[i] = F::BYTES % 2u ? weights + at * group_bytes<F>(blocks) : weights + at * (GROUP_ROWS * F::BYTES) * blocks;
    }
    SplitChains<F, COLS> chain = {};
#if STRATA_BROKEN == 2
    split_stage<F, COLS>(staged, codes, sums, begin, end, blocks, live, table, values);
    async_wait<0>();
    barrier();
    for (u32 s = first; s < last; s++) {
        // block s lies where the chains as they should be have it
        const u32 step = s - chain_start<F::CHAINS>(chain_of<F::CHAINS>(s, blocks), blocks);
        const Place at = place_of<F>(walk.group[0], r, blocks, s);
        SplitWalk<F, COLS> there = walk;
        UNROLL for (int t = 0; t < S::OWN; t++) {
            const i32 by = (i32)(s - step) - (i32)first;
            there.scales[t] = walk.scales[t] + by * (i32)S::SCALES;
            if constexpr (F::MINIMA) there.sums[t] = walk.sums[t] + by * (i32)F::PARTS;
        }
        Share<F, COLS> one;
        load_share<F>(one, there, step, at.count, at.slot, q);
        add_share<F, COLS>(chain, one, acts_from<F>(acts, s), q, table);
    }
#else
    // of the chains with one block more, as many lie before c as its start is late
    const u32 full = blocks / F::CHAINS, more = blocks % F::CHAINS * GROUP_ROWS, more_slot = (first - c * full) * GROUP_ROWS + r;
    const bool longer = last - first > full;
    Share<F, COLS> now[2], more_share;
    UNROLL for (u32 d = 0; d < 2; d++) {
        if (d < full) load_full<F>(now[d], walk, d, q);
    }
    if (longer) load_share<F>(more_share, walk, full, more, more_slot, q);
#if !SPLIT_STAGES_FIRST
    split_stage<F, COLS>(staged, codes, sums, begin, end, blocks, live, table, values);
#endif
    async_wait<0>();
    if constexpr (F::TABLE > 0 || S::SHARERS > 1) barrier();
    else wave_sync();
    acts = acts_from<F>(acts, first);
    for (u32 t = 0; t < full; t += 2u) {
        UNROLL for (u32 d = 0; d < 2; d++) {
            if (t + d < full) {
                add_share<F, COLS>(chain, now[d], acts_from<F>(acts, t + d), q, table);
                if (t + d + 2u < full) load_full<F>(now[d], walk, t + d + 2u, q);
            }
        }
    }
    if (longer) add_share<F, COLS>(chain, more_share, acts_from<F>(acts, full), q, table);
#endif
    // chains of column t of row i: [t][chain][row]
    if (COLS > 1 || q == 0u) {
        UNROLL for (int i = 0; i < S::EACH; i++) {
            UNROLL for (int t = 0; t < S::OWN; t++)
                chains[(((S::OWN > 1 ? (u32)t : COLS > 1 ? q : 0u)) * F::CHAINS + c) * S::ROWS + (u32)i * S::APART + own] = chain[i][t];
        }
    }
    barrier();
    const u32 i = thread_x() % S::ROWS, t = thread_x() / S::ROWS, row = block_x() * S::ROWS + i;
    if (t < (COLS == 1 ? 1u : live) && row < n_out) {
        const f32* at = chains + t * F::CHAINS * S::ROWS + i;
        f32 y = at[0];
        UNROLL for (u32 k = 1; k < F::CHAINS; k++) y = y + at[chain_in_order(k) * S::ROWS];
        out[(u64)t * out_stride + row] = y;
    }
}

#define MAT_VEC_SPLIT_OF(format, symbol, cols)                                                                                         \
    KERNEL_OCC(MAT_VEC_THREADS, (Split<format, cols>::HELD))                                                                           \
    mat_vec_##symbol(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,       \
                     const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT experts, \
                     u32 share, u32 live) {                                                                                            \
        mat_vec_split<format, cols>(weights, codes, scales, sums, values, out, blocks, n_out, out_stride, experts, share, live);       \
    }
#define MAT_VEC_SPLIT(format, name) MAT_VEC_SPLIT_OF(format, name##_c1_split, 1) MAT_VEC_SPLIT_OF(format, name##_c4_split, 4)
