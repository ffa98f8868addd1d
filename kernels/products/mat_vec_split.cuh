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
    static constexpr int DEPTH = 3;                                   // blocks of a row under way
    // Groups a multiprocessor holds: with 7, ten experts of 640 rows, or of 2560 narrow ones, are all at work at one time.
#if STRATA_CUDA && STRATA_SM < 800  // whose code takes more registers
    static constexpr int HELD = 5;
#else
    static constexpr int HELD = LARGE ? 5 : 7;
#endif
};
// A lane's share of a block, with what it needs of the activations but their codes, which lie in shared memory.
template <class F> struct Share {
    typename F::Head head[Split<F>::EACH];
    typename F::Part part[Split<F>::EACH][Split<F>::PARTS];
    f32 scale;
    i32 sum[Split<F>::PARTS];  // where there are minima
};
template <class F> DEVICE void load_share(Share<F>& to, const Walk& k, const f32* scales, const i32* sums, u32 s, u32 q) {
    to.scale = scales[s];
    UNROLL for (int i = 0; i < Split<F>::EACH; i++) {
        Walk mine = k;
        mine.row = k.row + (u32)i * Split<F>::APART;
        const Place at = block_at<F>(mine, 0, s);
        to.head[i] = F::head(at);
        UNROLL for (int j = 0; j < Split<F>::PARTS; j++) to.part[i][j] = F::load(at, j * (int)Split<F>::LANES + (int)q);
    }
    if constexpr (F::MINIMA) {
        UNROLL for (int j = 0; j < Split<F>::PARTS; j++) to.sum[j] = sums[s * F::PARTS + (u32)j * Split<F>::LANES + q];
    }
}
// Adds a block to the chains of its rows; `acts` are the codes of the activations.
template <class F> DEVICE void add_share(f32 (&chain)[Split<F>::EACH], const Share<F>& b, const u8* acts, u32 q, const u32* table) {
    typedef Split<F> S;
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
            if constexpr (F::SUBS == 1) isum[i] += F::scale4(b.head[i], j, q, 0) * second;
            if constexpr (F::SUBS == 2) isum[i] += F::scale4(b.head[i], j, q, 0) * first + F::scale4(b.head[i], j, q, 1) * second;
        }
        if constexpr (F::MINIMA) least += F::minimum4(b.head[0], j, q) * b.sum[j];
    }
    if constexpr (S::LANES > 1) {
        UNROLL for (int i = 0; i < S::EACH; i++) isum[i] += lane_xor<8>(isum[i]), isum[i] += lane_xor<16>(isum[i]);
        if constexpr (F::MINIMA) least += lane_xor<8>(least), least += lane_xor<16>(least);
    }
    UNROLL for (int i = 0; i < S::EACH; i++) chain[i] = fma_(b.head[i].d * b.scale, float_of_int(isum[i] >> F::SHIFT), chain[i]);
    if constexpr (F::MINIMA) chain[0] = fma_(-(F::dmin(b.head[0]) * b.scale), float_of_int(least), chain[0]);
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
    for (u32 i = first * (F::WIDTH / 16u) + lane(); i < last * (F::WIDTH / 16u); i += 32u) async_copy16((U4*)to + i, (const U4*)codes + i);
    async_commit();
}

// out[row] = W x; `experts` and `share` as in mat_vec.
template <class F>
DEVICE void mat_vec_split(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                          const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT experts,
                          u32 share) {
    typedef Split<F> S;
    DYN_SHARED(u8, shared);
    u32* table = (u32*)shared;
    f32* chains = (f32*)(shared + F::TABLE * 4u);
    u8* staged = shared + F::TABLE * 4u + F::CHAINS * S::ROWS * 4u + wave() / S::WAVES * (blocks * F::WIDTH);
    const u32 padded = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS * GROUP_ROWS;
    const u32 r = lane() % GROUP_ROWS, fourth = lane() / GROUP_ROWS;
    const u32 q = S::LANES > 1 ? fourth : 0u;
    const u32 low = wave() % S::WAVES * S::WAVE_CHAINS, c = S::LANES > 1 ? low : low + fourth;
    const u32 own = wave() / S::WAVES * GROUP_ROWS + r, tile = block_x() * S::ROWS;
    u32 first, last, begin, end;
    chain_range<F>(c, blocks, first, last);
    chain_range<F>(low, blocks, begin, end);
    if constexpr (S::WAVE_CHAINS > 1) {
        u32 start;
        chain_range<F>(low + S::WAVE_CHAINS - 1u, blocks, start, end);
    }
    i32 expert = 0;
    if (experts) {
        expert = experts[block_y()];
        const u32 x = block_y() / share;
        codes += (u64)x * blocks * F::WIDTH;
        scales += (u64)x * blocks;
        sums += (u64)x * blocks * F::PARTS;
        out += (u64)block_y() * out_stride;
    }
#if SPLIT_STAGES_FIRST
    split_stage<F>(staged, codes, begin, end, table, values);
#endif
    if (expert < 0) {
        async_wait<0>();
        return;
    }
    const Walk walk = {weights + (u64)(u32)expert * padded * blocks * F::BYTES, blocks, padded, tile + own, c, first, last};
    Share<F> now[S::DEPTH];
    UNROLL for (int d = 0; d < S::DEPTH; d++) {
        if (first + (u32)d < last) load_share<F>(now[d], walk, scales, sums, first + (u32)d, q);
    }
#if !SPLIT_STAGES_FIRST
    split_stage<F>(staged, codes, begin, end, table, values);
#endif
    async_wait<0>();
    if constexpr (F::TABLE > 0) barrier();
    else wave_sync();
    f32 chain[S::EACH] = {};
    for (u32 s = first; s < last; s += (u32)S::DEPTH) {
        UNROLL for (int d = 0; d < S::DEPTH; d++) {
            const u32 at = s + (u32)d;
            if (at < last) {
                add_share<F>(chain, now[d], staged + at * F::WIDTH, q, table);
                if (at + (u32)S::DEPTH < last) load_share<F>(now[d], walk, scales, sums, at + (u32)S::DEPTH, q);
            }
        }
    }
    if (q == 0u) {
        UNROLL for (int i = 0; i < S::EACH; i++) chains[c * S::ROWS + (u32)i * S::APART + own] = chain[i];
    }
    barrier();
    const u32 row = thread_x();
    if (row < S::ROWS && tile + row < n_out) {
        f32 y = chains[row];
        UNROLL for (u32 k = 1; k < F::CHAINS; k++) y = y + chains[chain_in_order(k) * S::ROWS + row];
        out[tile + row] = y;
    }
}

#define MAT_VEC_SPLIT(format, name)                                                                                                    \
    KERNEL_OCC(MAT_VEC_THREADS, Split<format>::HELD)                                                                                                \
    mat_vec_##name##_c1_split(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums, \
                              const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride,                    \
                              const i32* RESTRICT experts, u32 share, u32) {                                                           \
        mat_vec_split<format>(weights, codes, scales, sums, values, out, blocks, n_out, out_stride, experts, share);                   \
    }
