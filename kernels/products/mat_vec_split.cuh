// Mat-vec of one column for matrices too small to fill a device with a thread for each chain: one result with mat_vec.cuh, since
// sums inside a block are integers. Lanes of a wave are eight neighbouring rows times four: four lanes share each wide block and
// take two of its parts each; of narrow blocks each lane has one, of four chains. So a wave owns one chain of wide blocks and a
// workgroup the four of eight rows, or two waves the eight of narrow ones. Waves wait for each other for the table and the sum of
// the chains only, and every load that can go is under way before the first wait.
#pragma once
#include "products/mat_vec.cuh"

template <class F> struct Split {
    static constexpr u32 LANES = F::WIDTH == 256 ? 4u : 1u;           // that share a block
    static constexpr int PARTS = (int)(F::PARTS / LANES);             // of a lane
    static constexpr u32 WAVE_CHAINS = 4u / LANES, WAVES = F::CHAINS / WAVE_CHAINS;  // chains of a wave, waves of eight rows
    static constexpr bool LARGE = sizeof(typename F::Part) > 16;
    static constexpr int EACH = LANES == 1 && !LARGE ? 2 : 1;         // rows of a thread
    static constexpr u32 APART = 4u / WAVES * GROUP_ROWS, ROWS = APART * EACH;  // between a thread's rows, and rows of a workgroup
    static constexpr u32 STEP = F::CHAINS * GROUP_ROWS * F::BYTES;    // bytes of a full step of the layout
    // Groups a multiprocessor holds: with 7, ten experts of 640 rows, or of 2560 narrow ones, are all at work at one time.
#if STRATA_CUDA && STRATA_SM < 800  // whose code takes more registers
    static constexpr int HELD = 5;
#else
    static constexpr int HELD = LARGE ? 5 : 7;
#endif
};
// A lane's share of a block, with what it needs of the activations but their codes, which lie in shared memory.
template <class F> struct Share {
    typename F::Raw head[Split<F>::EACH];
    typename F::Part part[Split<F>::EACH][Split<F>::PARTS];
    f32 scale;
    i32 sum[Split<F>::PARTS];  // where there are minima
};
// Where a lane's blocks lie. Steps that hold a block of every chain have their pieces at distances that the compiler knows.
struct SplitWalk {
    const u8* group[2];  // of eight rows
    u32 slot;
    const f32* scales;  // of the chain's first block
    const i32* sums;
};
template <class F> DEVICE void load_share(Share<F>& to, const SplitWalk& k, u32 step, u32 count, u32 slot, u32 q) {
    typedef Split<F> S;
    to.scale = k.scales[step];
    UNROLL for (int i = 0; i < S::EACH; i++) {
        const Place at = {k.group[i] + step * S::STEP, count, slot};
        to.head[i] = F::raw(at);
        UNROLL for (int j = 0; j < S::PARTS; j++) to.part[i][j] = F::load(at, j * (int)S::LANES + (int)q);
    }
    if constexpr (F::MINIMA) {
        UNROLL for (int j = 0; j < S::PARTS; j++) to.sum[j] = k.sums[step * F::PARTS + (u32)j * S::LANES];
    }
}
template <class F> DEVICE void load_full(Share<F>& to, const SplitWalk& k, u32 step, u32 q) {
    load_share<F>(to, k, step, F::CHAINS * GROUP_ROWS, k.slot, q);
}
// Adds a block to the chains of its rows; `acts` are the codes of the activations.
template <class F> DEVICE void add_share(f32 (&chain)[Split<F>::EACH], const Share<F>& b, const u8* acts, u32 q, const u32* table) {
    typedef Split<F> S;
    typename F::Head head[S::EACH];
    UNROLL for (int i = 0; i < S::EACH; i++) head[i] = F::opened(b.head[i]);
    i32 isum[S::EACH] = {}, least = 0;
    UNROLL for (int j = 0; j < S::PARTS; j++) {
        const U4* a = (const U4*)(acts + 32u * (S::LANES * (u32)j + q));
        const U4 x = a[0], y = a[1];
        UNROLL for (int i = 0; i < S::EACH; i++) {
            u32 w[8];
            F::decode(b.part[i][j], 0, w, table);
            i32 first = dot4(w[0], x.x, 0);
            first = dot4(w[1], x.y, first), first = dot4(w[2], x.z, first), first = dot4(w[3], x.w, first);
            i32 second = F::SUBS == 2 ? 0 : first;
            second = dot4(w[4], y.x, second), second = dot4(w[5], y.y, second);
            second = dot4(w[6], y.z, second), second = dot4(w[7], y.w, second);
            if constexpr (F::SUBS == 0) isum[i] += second;
            if constexpr (F::SUBS == 1) isum[i] += F::scale4(head[i], j, q, 0) * second;
            if constexpr (F::SUBS == 2) isum[i] += F::scale4(head[i], j, q, 0) * first + F::scale4(head[i], j, q, 1) * second;
        }
        if constexpr (F::MINIMA) least += F::minimum4(head[0], j, q) * b.sum[j];
    }
    if constexpr (S::LANES > 1) {
        UNROLL for (int i = 0; i < S::EACH; i++) isum[i] += lane_xor<8>(isum[i]), isum[i] += lane_xor<16>(isum[i]);
        if constexpr (F::MINIMA) least += lane_xor<8>(least), least += lane_xor<16>(least);
    }
    UNROLL for (int i = 0; i < S::EACH; i++) chain[i] = fma_(head[i].d * b.scale, float_of_int(isum[i] >> F::SHIFT), chain[i]);
    if constexpr (F::MINIMA) chain[0] = fma_(-(F::dmin(head[0]) * b.scale), float_of_int(least), chain[0]);
}

// Asynchronous copies go before the weights' loads, which wait for the expert's number; others would hold these up.
#if STRATA_CUDA && STRATA_SM >= 800
#define SPLIT_STAGES_FIRST 1
#else
#define SPLIT_STAGES_FIRST 0
#endif
// Codes of the wave's chains, which no other wave reads, and the table, which all do.
template <class F> DEVICE void split_stage(u8* to, const i8* codes, u32 first, u32 last, u32* table, const u32* values) {
    if constexpr (F::TABLE > 0) {
        UNROLL for (u32 i = 0; i < F::TABLE / 4u; i += MAT_VEC_THREADS) {
            if (i + thread_x() < F::TABLE / 4u) async_copy16((U4*)table + i + thread_x(), (const U4*)values + i + thread_x());
        }
    }
    NO_UNROLL for (u32 i = first * (F::WIDTH / 16u) + lane(); i < last * (F::WIDTH / 16u); i += 32u) async_copy16((U4*)to + i, (const U4*)codes + i);
    async_commit();
}

// out[row] = W x. With `experts`, W holds a matrix for each expert and the grid's y and z count the `share` experts of a column and
// the columns; `live` is the number of experts in all, an id below 0 writes nothing.
template <class F>
DEVICE void mat_vec_split(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                          const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT experts,
                          u32 share, u32 live) {
    typedef Split<F> S;
    DYN_SHARED(u8, shared);
    u32* table = (u32*)shared;
    f32* chains = (f32*)(shared + F::TABLE * 4u);
    u8* staged = shared + F::TABLE * 4u + F::CHAINS * S::ROWS * 4u + wave() / S::WAVES * (blocks * F::WIDTH);
    i32 expert = 0;
    if (experts) {
        const u32 x = block_z(), id = x * share + block_y();
        expert = id < live ? experts[id] : -1;
        codes += (u64)x * blocks * F::WIDTH;
        scales += (u64)x * blocks;
        sums += (u64)x * blocks * F::PARTS;
        out += (u64)id * out_stride;
    }
    // the wave's chains low, low + 1, ...
    const u32 low = wave() % S::WAVES * S::WAVE_CHAINS;
    u32 begin, end, first, last;
    chain_range<F>(low, blocks, begin, end);
    if constexpr (S::WAVE_CHAINS > 1) {
        u32 start;
        chain_range<F>(low + S::WAVE_CHAINS - 1u, blocks, start, end);
    }
#if SPLIT_STAGES_FIRST
    split_stage<F>(staged, codes, begin, end, table, values);
#endif
    if (expert < 0) {
        async_wait<0>();
        return;
    }
    const u32 r = lane() % GROUP_ROWS, fourth = lane() / GROUP_ROWS, own = wave() / S::WAVES * GROUP_ROWS + r;
    const u32 q = S::LANES > 1 ? fourth : 0u, c = S::LANES > 1 ? low : low + fourth, groups = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS;
    chain_range<F>(c, blocks, first, last);
    SplitWalk walk;
    walk.slot = c * GROUP_ROWS + r, walk.scales = scales + first, walk.sums = sums + first * F::PARTS + q;
    UNROLL for (int i = 0; i < S::EACH; i++) {
        const u32 group = (block_x() * S::ROWS + (u32)i * S::APART) / GROUP_ROWS + wave() / S::WAVES;
        const u64 at = (u64)(u32)expert * groups + smaller(group, groups - 1u);  // rows beyond the end repeat the last
        walk.group[i] = weights + at * (GROUP_ROWS * F::BYTES) * blocks;
    }
    f32 chain[S::EACH] = {};
#if STRATA_BROKEN == 2
    split_stage<F>(staged, codes, begin, end, table, values);
    async_wait<0>();
    barrier();
    for (u32 s = first; s < last; s++) {
        // block s lies where the chains as they should be have it
        const u32 step = s - chain_start<F::CHAINS>(chain_of<F::CHAINS>(s, blocks), blocks);
        const Place at = place_of<F>(walk.group[0], r, blocks, s);
        SplitWalk there = walk;
        there.scales = scales + s - step, there.sums = sums + (s - step) * F::PARTS + q;
        Share<F> one;
        load_share<F>(one, there, step, at.count, at.slot, q);
        add_share<F>(chain, one, staged + s * F::WIDTH, q, table);
    }
#else
    // of the chains with one block more, as many lie before c as its start is late
    const u32 full = blocks / F::CHAINS, more = blocks % F::CHAINS * GROUP_ROWS, more_slot = (first - c * full) * GROUP_ROWS + r;
    const bool longer = last - first > full;
    Share<F> now[2], more_share;
    UNROLL for (u32 d = 0; d < 2; d++) {
        if (d < full) load_full<F>(now[d], walk, d, q);
    }
    if (longer) load_share<F>(more_share, walk, full, more, more_slot, q);
#if !SPLIT_STAGES_FIRST
    split_stage<F>(staged, codes, begin, end, table, values);
#endif
    async_wait<0>();
    if constexpr (F::TABLE > 0) barrier();
    else wave_sync();
    const u8* acts = staged + first * F::WIDTH;
    for (u32 t = 0; t < full; t += 2u) {
        UNROLL for (u32 d = 0; d < 2; d++) {
            if (t + d < full) {
                add_share<F>(chain, now[d], acts + (t + d) * F::WIDTH, q, table);
                if (t + d + 2u < full) load_full<F>(now[d], walk, t + d + 2u, q);
            }
        }
    }
    if (longer) add_share<F>(chain, more_share, acts + full * F::WIDTH, q, table);
#endif
    if (q == 0u) {
        UNROLL for (int i = 0; i < S::EACH; i++) chains[c * S::ROWS + (u32)i * S::APART + own] = chain[i];
    }
    barrier();
    const u32 i = thread_x(), row = block_x() * S::ROWS + i;
    if (i < S::ROWS && row < n_out) {
        f32 y = chains[i];
        UNROLL for (u32 k = 1; k < F::CHAINS; k++) y = y + chains[chain_in_order(k) * S::ROWS + i];
        out[row] = y;
    }
}

#define MAT_VEC_SPLIT(format, name)                                                                                                    \
    KERNEL_OCC(MAT_VEC_THREADS, Split<format>::HELD)                                                                                                \
    mat_vec_##name##_c1_split(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums, \
                              const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride,                    \
                              const i32* RESTRICT experts, u32 share, u32 live) {                                                      \
        mat_vec_split<format>(weights, codes, scales, sums, values, out, blocks, n_out, out_stride, experts, share, live);             \
    }
