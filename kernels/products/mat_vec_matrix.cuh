// Mat-vec of wide formats for three to eight columns by NVIDIA's matrix instruction: one result with mat_vec.cuh, since sums inside
// a block are integers. A wave owns one chain of sixteen rows, a workgroup their four chains, which it adds in order. Each
// thread holds word q of a part of rows g and g + 8, which is where the instruction wants the codes in their own order.
#pragma once
#include "products/mat_vec.cuh"

#if STRATA_CUDA
// A thread's share of a part: raw bits, then the codes 4 q .. 4 q + 3 and those 16 further.
template <class F> struct MatrixWord;
DEVICE u32 word_at(const Place& p, int part, u32 q) { return *(const u32*)(p.tile + 16u * (u32)part * p.count + p.slot * 16u + 4u * q); }

template <> struct MatrixWord<Q4_K> {
    static constexpr int HELD = 5, ROWS_HELD = 4;  // groups a multiprocessor, by registers
    u32 v;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q)}; }
    __device__ inline void codes(u32, u32& low, u32& high) const { low = v & 0x0f0f0f0fu, high = v >> 4 & 0x0f0f0f0fu; }
};
template <> struct MatrixWord<Q5_K> {
    static constexpr int HELD = 4, ROWS_HELD = 4;  // groups a multiprocessor, by registers
    u32 v, h;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q), piece<u32>(p, 144u + 4u * part)}; }
    __device__ inline void codes(u32 q, u32& low, u32& high) const {
        low = (v & 0x0f0f0f0fu) | (h << (4u - q) & 0x10101010u);
        high = (v >> 4 & 0x0f0f0f0fu) | (h >> q & 0x10101010u);
    }
};
template <> struct MatrixWord<Q6_K> {
    static constexpr int HELD = 3, ROWS_HELD = 3;  // groups a multiprocessor, by registers
    u32 v;
    U2 h;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q), piece<U2>(p, 128u + 8u * part)}; }
    __device__ inline void codes(u32 q, u32& low, u32& high) const {
        low = ((v << 2 & 0x3c3c3c3cu) ^ 0x80808080u) ^ (h.x << (6u - 2u * q) & 0xc0c0c0c0u);
        high = ((v >> 2 & 0x3c3c3c3cu) ^ 0x80808080u) ^ (h.y << (6u - 2u * q) & 0xc0c0c0c0u);
    }
};
template <> struct MatrixWord<IQ4_XS> {
    static constexpr int HELD = 5, ROWS_HELD = 4;  // groups a multiprocessor, by registers
    u32 v;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q)}; }
    __device__ inline void codes(u32, u32& low, u32& high) const {
        const u32 table[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
        nibble_lookup16(table, v, low, high);
    }
};

// A block of rows g and g + 8, as loaded.
template <class F> struct MatrixBlock {
    typename F::Raw head[2];
    MatrixWord<F> word[F::PARTS][2];
};
// Where the blocks of a tile of sixteen rows lie: of each of its two groups of eight rows.
template <class F> struct MatrixTile {
    const u8* group;
    u32 apart;  // bytes to the second group; the last, if it has no neighbour, stands in for it
    u32 blocks;
    __device__ inline MatrixTile(const u8* weights, u32 blocks, u32 padded, u32 tile) : blocks(blocks) {
        const u32 bytes = GROUP_ROWS * F::BYTES * blocks;
        group = weights + (u64)(tile / GROUP_ROWS) * bytes;
        apart = tile + GROUP_ROWS < padded ? bytes : 0u;
    }
    // Block number `step` of chain c.
    __device__ inline Place at(u32 c, u32 step) const {
        const u32 full = blocks / F::CHAINS, r = lane() >> 2;
        const u8* tile = group + step * (F::CHAINS * GROUP_ROWS * F::BYTES);
        if (step < full) return Place{tile, F::CHAINS * GROUP_ROWS, c * GROUP_ROWS + r};
        // of the chains with one block more, as many lie before c as its start is late
        return Place{tile, blocks % F::CHAINS * GROUP_ROWS, (chain_start<F::CHAINS>(c, blocks) - c * full) * GROUP_ROWS + r};
    }
    // Block s of a row, as it lies in the chains as they should be.
    __device__ inline Place of(u32 s) const {
        const u32 c = chain_of<F::CHAINS>(s, blocks);
        return at(c, s - chain_start<F::CHAINS>(c, blocks));
    }
};
DEVICE Place second(Place p, u32 apart) { return Place{p.tile + apart, p.count, p.slot}; }
template <class F> DEVICE void load_block(MatrixBlock<F>& to, const Place& at, u32 apart, u32 q) {
    UNROLL for (int i = 0; i < 2; i++) {
        const Place p = i ? second(at, apart) : at;
        to.head[i] = F::raw(p);
        UNROLL for (int part = 0; part < (int)F::PARTS; part++) to.word[part][i] = MatrixWord<F>::load(p, part, q);
    }
}

// Adds a block to the chains: [row g, row g + 8][column 2 q, 2 q + 1]. What has been used is loaded anew from `next` if there is `more`.
template <class F>
DEVICE void matrix_block(f32 (&chain)[4], MatrixBlock<F>& block, const u8* acts, u32 column, bool more, const Place& next, u32 apart) {
    typedef ActBlock<F> A;
    const u32 g = lane() >> 2, q = lane() & 3u;
    typename F::Head head[2];
    UNROLL for (int i = 0; i < 2; i++) {
        head[i] = F::opened(block.head[i]);
        if (more) block.head[i] = F::raw(i ? second(next, apart) : next);
    }
    i32 isum[4] = {};
    UNROLL for (int part = 0; part < (int)F::PARTS; part++) {
        u32 a[4];
        UNROLL for (int i = 0; i < 2; i++) {
            block.word[part][i].codes(q, a[i], a[2 + i]);
            if (more) block.word[part][i] = MatrixWord<F>::load(i ? second(next, apart) : next, part, q);
        }
        const u8* x = acts + g * column + 32 * part + 4u * q;
        const u32 b[2] = {*(const u32*)x, *(const u32*)(x + 16)};
        if constexpr (F::SUBS == 2) {
            UNROLL for (int half = 0; half < 2; half++) {
                const u32 some[4] = {half ? 0u : a[0], half ? 0u : a[1], half ? a[2] : 0u, half ? a[3] : 0u};
                i32 sum[4] = {};
                nv_mma_s8(sum, some, b);
                UNROLL for (int i = 0; i < 4; i++) isum[i] += F::scale(head[i >> 1], part, half) * sum[i];
            }
        } else {
            i32 sum[4] = {};
            nv_mma_s8(sum, a, b);
            UNROLL for (int i = 0; i < 4; i++) isum[i] += F::scale(head[i >> 1], part, 0) * sum[i];
        }
    }
    UNROLL for (int i = 0; i < 4; i++) {
        const u8* x = acts + (2u * q + (i & 1)) * column;
        const f32 scale = *(const f32*)(x + A::SCALE);
        const typename F::Head& h = head[i >> 1];
        chain[i] = fma_(h.d * scale, float_of_int(isum[i] >> F::SHIFT), chain[i]);
        if constexpr (F::MINIMA) {
            const U4 sums = *(const U4*)(x + A::SUMS);
            const i32 low = dot4(F::minima(h, 1), sums.y, dot4(F::minima(h, 0), sums.x, 0));
            const i32 high = dot4(F::minima(h, 1), sums.w, dot4(F::minima(h, 0), sums.z, 0));
            chain[i] = fma_(-(F::dmin(h) * scale), float_of_int(256 * high + low), chain[i]);
        }
    }
}

template <class F>
DEVICE void mat_vec_matrix(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                           f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, u32 live) {
    DYN_SHARED(u8, shared);
    f32 (*chains)[8][16] = (f32 (*)[8][16])shared;  // of the four waves
    u8* acts = shared + 4u * 8u * 16u * 4u;
    const u32 padded = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS * GROUP_ROWS, column = blocks * ActBlock<F>::BYTES;
    stage_acts<F>(acts, codes, scales, sums, blocks * live);
    barrier();
    const u32 c = wave(), g = lane() >> 2, q = lane() & 3u;
    u32 first, last;
    chain_range<F>(c, blocks, first, last);
    for (u32 tile = block_x() * 16u; tile < padded; tile += grid_x() * 16u) {
        const MatrixTile<F> at(weights, blocks, padded, tile);
        f32 chain[4] = {};
        MatrixBlock<F> block;
#if STRATA_BROKEN == 2
        const auto place_at = [&](u32 s) { return at.of(s); };
#else
        const auto place_at = [&](u32 s) { return at.at(c, s - first); };
#endif
        if (first < last) load_block<F>(block, place_at(first), at.apart, q);
        for (u32 s = first; s < last; s++) {
            const bool more = s + 1u < last;
            matrix_block<F>(chain, block, acts + s * ActBlock<F>::BYTES, column, more, place_at(more ? s + 1u : s), at.apart);
        }
        UNROLL for (int i = 0; i < 4; i++) chains[c][2u * q + (i & 1)][g + 8u * (i >> 1)] = chain[i];
        barrier();
        const u32 t = thread_x() >> 4, row = thread_x() & 15u;
        f32 y = chains[0][t][row];
        UNROLL for (u32 k = 1; k < F::CHAINS; k++) y = y + chains[chain_in_order(k)][t][row];
        if (t < live && tile + row < n_out) out[(u64)t * out_stride + tile + row] = y;
        barrier();
    }
}

// The same for matrices that give each wave tiles of its own: no wave waits for another. A wave goes through a tile as it lies in memory,
// the blocks of all four chains at a step before those of the next, and has the next block on its way, of the next tile too.
template <class F>
DEVICE void mat_vec_matrix_rows(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                                f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, u32 live) {
    static_assert(F::CHAINS == 4, "wide formats");
    DYN_SHARED(u8, acts);
    const u32 padded = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS * GROUP_ROWS, column = blocks * ActBlock<F>::BYTES;
    const u32 g = lane() >> 2, q = lane() & 3u, stride = grid_x() * 64u;
    u32 tile = (block_x() * 4u + wave()) * 16u;
    // visit v is block v / 4 of chain v % 4, which shorter chains lack at the end
    const u32 full = blocks / 4u, visits = (blocks + 3u) / 4u * 4u;
    const auto exists = [&](u32 v) { return v / 4u < full || chain_start<4>(v % 4u + 1u, blocks) - chain_start<4>(v % 4u, blocks) > full; };
    const auto following = [&](u32 v) {
        do v++;
        while (v < visits && !exists(v));
        return v;
    };
    const u32 begin = exists(0) ? 0u : following(0);
    MatrixBlock<F> block;
    if (tile < padded) {
        const MatrixTile<F> at(weights, blocks, padded, tile);
        load_block<F>(block, at.at(begin % 4u, begin / 4u), at.apart, q);
    }
    stage_acts<F>(acts, codes, scales, sums, blocks * live);
    barrier();
    for (; tile < padded; tile += stride) {
        f32 chain[4][4] = {};
#if STRATA_BROKEN == 2  // half as many chains, for the suite's negative control
        const MatrixTile<F> at(weights, blocks, padded, tile);
        NO_UNROLL for (u32 s = 0; s < blocks; s++) {
            f32 (&mine)[4] = chain[s < chain_start<4>(2u, blocks) ? 0 : 1];
            load_block<F>(block, at.of(s), at.apart, q);
            matrix_block<F>(mine, block, acts + s * ActBlock<F>::BYTES, column, false, at.of(s), at.apart);
        }
#else
        NO_UNROLL for (u32 v = 0; v < visits; v++) {
            if (exists(v)) {
                u32 then = following(v), next = tile;
                if (then >= visits) then = begin, next = tile + stride;
                const MatrixTile<F> at(weights, blocks, padded, next);
                const u32 s = chain_start<4>(v % 4u, blocks) + v / 4u;
                matrix_block<F>(chain[0], block, acts + s * ActBlock<F>::BYTES, column, next < padded, at.at(then % 4u, then / 4u), at.apart);
            }
            // the next chain's turn
            UNROLL for (int i = 0; i < 4; i++) {
                const f32 mine = chain[0][i];
                chain[0][i] = chain[1][i], chain[1][i] = chain[2][i], chain[2][i] = chain[3][i], chain[3][i] = mine;
            }
        }
#endif
        UNROLL for (int i = 0; i < 4; i++) {
            f32 y = chain[0][i];
            UNROLL for (u32 k = 1; k < 4; k++) y = y + chain[chain_in_order(k)][i];
            const u32 t = 2u * q + (i & 1), row = tile + g + 8u * (i >> 1);
            if (t < live && row < n_out) out[(u64)t * out_stride + row] = y;
        }
    }
}

#define MAT_VEC_MATRIX(format, name)                                                                                                   \
    KERNEL_OCC(MAT_VEC_THREADS, MatrixWord<format>::HELD)                                                                              \
    mat_vec_##name##_c8_matrix(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales,                       \
                               const i32* RESTRICT sums, const u32* RESTRICT, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, \
                               const i32* RESTRICT, u32, u32 live) {                                                                   \
        mat_vec_matrix<format>(weights, codes, scales, sums, out, blocks, n_out, out_stride, live);                                    \
    }                                                                                                                                  \
    KERNEL_OCC(MAT_VEC_THREADS, MatrixWord<format>::ROWS_HELD)                                                                         \
    mat_vec_##name##_c8_matrix_rows(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales,                  \
                                    const i32* RESTRICT sums, const u32* RESTRICT, f32* RESTRICT out, u32 blocks, u32 n_out,           \
                                    u32 out_stride, const i32* RESTRICT, u32, u32 live) {                                              \
        mat_vec_matrix_rows<format>(weights, codes, scales, sums, out, blocks, n_out, out_stride, live);                               \
    }
#else
#define MAT_VEC_MATRIX(format, name)
#endif
