// Quantised matrix times up to eight columns of activations (NUMERICS.md section 2).
//
// A thread owns one chain of a row: it walks the chain's blocks alone, sums a block in integers and adds it to its chain by
// FMAs, so no lane waits for another until the chains are added at the end. The repacked layout (formats/layout.cuh) puts
// what the threads of a wave read at one time side by side. ROWS rows a thread share what is read of the activations,
// which lie in shared memory; weights are decoded once for all COLS columns. Results do not depend on ROWS or COLS.
#pragma once
#include "products/formats.cuh"

#define MAT_VEC_THREADS 128u

// A block of activations in shared memory: codes, for formats with minima the sums of 32 codes, the scale. An odd multiple of
// 16 bytes, so that chains, which read different blocks at the same offset, meet in few banks.
template <class F> struct ActBlock {
    static constexpr u32 SUMS = F::WIDTH, SCALE = F::WIDTH + (F::MINIMA ? 32u : 0u), BYTES = SCALE + 16u;
};

template <class F> DEVICE void stage_acts(u8* to, const i8* codes, const f32* scales, const i32* sums, u32 count) {
    typedef ActBlock<F> A;
    constexpr u32 words = F::WIDTH / 16u;
    for (u32 i = thread_x(); i < count * words; i += MAT_VEC_THREADS) *(U4*)(to + i / words * A::BYTES + i % words * 16u) = ((const U4*)codes)[i];
    if constexpr (F::MINIMA)
        for (u32 i = thread_x(); i < count * 2u; i += MAT_VEC_THREADS) *(U4*)(to + i / 2u * A::BYTES + A::SUMS + i % 2u * 16u) = ((const U4*)sums)[i];
    for (u32 i = thread_x(); i < count; i += MAT_VEC_THREADS) *(f32*)(to + i * A::BYTES + A::SCALE) = scales[i];
}

// A block of each of a thread's rows, as loaded: all of its loads are under way before the first is used.
template <class F, int ROWS> struct Blocks {
    typename F::Head head[ROWS];
    typename F::Part part[F::PARTS][ROWS];
};
// Which blocks a thread walks: those of chain c, first up to last, of `row` and rows 32 / CHAINS further.
struct Walk {
    const u8* weights;
    u32 blocks, padded, row, c, first, last;
};
// Loads blocks s, s + 1, ... as far as the chain goes.
template <class F, int ROWS, int depth> DEVICE void load_blocks(Blocks<F, ROWS> (&to)[depth], const Walk& k, u32 s) {
    UNROLL for (int d = 0; d < depth; d++) {
        if (s + d >= k.last) continue;
        UNROLL for (int i = 0; i < ROWS; i++) {
            const u32 mine = smaller(k.row + (u32)i * (32u / F::CHAINS), k.padded - 1u);  // rows beyond the end repeat the last
#if STRATA_BROKEN == 2
            const Place at = place_of<F>(k.weights, mine, k.blocks, s + d);
#else
            const Place at = place<F>(k.weights, mine, k.blocks, k.c, s + d - k.first);
#endif
            to[d].head[i] = F::head(at);
            UNROLL for (int part = 0; part < (int)F::PARTS; part++) to[d].part[part][i] = F::load(at, part);
        }
    }
}

// Adds a block of each row to its chain; `acts` is the block of column 0, columns are `column` bytes apart.
template <class F, int COLS, int ROWS>
DEVICE void add_block(const Blocks<F, ROWS>& b, const u8* acts, u32 column, const u32* table, f32 (&chain)[ROWS][COLS]) {
    typedef ActBlock<F> A;
    i32 isum[ROWS][COLS] = {}, msum[ROWS][COLS] = {};
    UNROLL for (int part = 0; part < (int)F::PARTS; part++) {
        u32 w[ROWS][8];
        UNROLL for (int i = 0; i < ROWS; i++) F::decode(b.part[part][i], part, w[i], table);
        UNROLL for (int t = 0; t < COLS; t++) {
            const u8* a = acts + t * column;
            const U4 x = *(const U4*)(a + 32 * part), y = *(const U4*)(a + 32 * part + 16);
            UNROLL for (int i = 0; i < ROWS; i++) {
                i32 first = F::SUBS == 0 ? isum[i][t] : 0;
                first = dot4(w[i][0], x.x, first), first = dot4(w[i][1], x.y, first);
                first = dot4(w[i][2], x.z, first), first = dot4(w[i][3], x.w, first);
                i32 second = F::SUBS == 2 ? 0 : first;
                second = dot4(w[i][4], y.x, second), second = dot4(w[i][5], y.y, second);
                second = dot4(w[i][6], y.z, second), second = dot4(w[i][7], y.w, second);
                if constexpr (F::SUBS == 0) isum[i][t] = second;
                if constexpr (F::SUBS == 1) isum[i][t] += F::scale(b.head[i], part, 0) * second;
                if constexpr (F::SUBS == 2) isum[i][t] += F::scale(b.head[i], part, 0) * first + F::scale(b.head[i], part, 1) * second;
                if constexpr (F::MINIMA) msum[i][t] += F::minimum(b.head[i], part) * *(const i32*)(a + A::SUMS + 4 * part);
            }
        }
    }
    UNROLL for (int t = 0; t < COLS; t++) {
        const f32 scale = *(const f32*)(acts + t * column + A::SCALE);
        UNROLL for (int i = 0; i < ROWS; i++) {
            chain[i][t] = fma_(b.head[i].d * scale, float_of_int(isum[i][t] >> F::SHIFT), chain[i][t]);
            if constexpr (F::MINIMA) chain[i][t] = fma_(-(F::dmin(b.head[i]) * scale), float_of_int(msum[i][t]), chain[i][t]);
        }
    }
}

// The sum of a row's chains in order; `rows` rows lie side by side in the wave.
template <u32 chains> DEVICE f32 add_chains(f32 chain) {
    constexpr u32 rows = 32u / chains;
    const u32 r = lane() % rows;
    f32 y = lane_get(chain, r);
    UNROLL for (u32 k = 1; k < chains; k++) {
        u32 c = k;
#if STRATA_BROKEN == 1
        c = k == 1 ? 2 : k == 2 ? 1 : k;  // for the suite's negative control
#endif
        y = y + lane_get(chain, c * rows + r);
    }
    return y;
}

// out[t][row] = W x_t for COLS columns; out rows are out_stride apart. With `experts`, W holds a matrix for each expert: group
// y of the grid multiplies matrix experts[y] by column y / share and writes row y of out; an id below 0 writes nothing.
// AHEAD loads a block while the one before is summed: for matrices so small that each thread has one row.
template <class F, int COLS, int ROWS, bool AHEAD>
DEVICE void mat_vec(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                    const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT experts, u32 share) {
    constexpr u32 wave_rows = 32u / F::CHAINS, group_rows = MAT_VEC_THREADS / 32u * wave_rows * ROWS;
    DYN_SHARED(u8, shared);
    const u32 padded = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS * GROUP_ROWS;
    if (experts) {
        const i32 expert = experts[block_y()];
        if (expert < 0) return;
        const u32 x = block_y() / share;
        weights += (u64)(u32)expert * padded * blocks * F::BYTES;
        codes += (u64)x * blocks * F::WIDTH;
        scales += (u64)x * blocks;
        sums += (u64)x * blocks * F::PARTS;
        out += (u64)block_y() * out_stride;
    }
    u32* table = (u32*)shared;
    u8* acts = shared + F::TABLE * 4u;
    if constexpr (F::TABLE > 0)
        for (u32 i = thread_x(); i < F::TABLE; i += MAT_VEC_THREADS) table[i] = values[i];
    stage_acts<F>(acts, codes, scales, sums, blocks * COLS);
    barrier();

    const u32 c = lane() / wave_rows, r = lane() % wave_rows, column = blocks * ActBlock<F>::BYTES;
#if STRATA_BROKEN == 2  // half as many chains, for the suite's negative control
    const u32 first = c < F::CHAINS / 2 ? chain_start<F::CHAINS>(2u * c, blocks) : blocks, last = c < F::CHAINS / 2 ? chain_start<F::CHAINS>(2u * c + 2u, blocks) : blocks;
#else
    const u32 first = chain_start<F::CHAINS>(c, blocks), last = chain_start<F::CHAINS>(c + 1u, blocks);
#endif
    for (u32 tile = block_x() * group_rows; tile < padded; tile += grid_x() * group_rows) {
        const u32 row = tile + wave() * wave_rows * ROWS + r;
        f32 chain[ROWS][COLS] = {};
        const Walk walk = {weights, blocks, padded, row, c, first, last};
        constexpr int depth = F::WIDTH == 32 ? 4 : 1;  // narrow blocks are few bytes, so several are loaded at a time
        Blocks<F, ROWS> now[depth], next[depth];
        if constexpr (AHEAD) load_blocks<F>(now, walk, first);
        for (u32 s = first; s < last; s += depth) {
            if constexpr (AHEAD) load_blocks<F>(next, walk, s + depth);
            else load_blocks<F>(now, walk, s);
            UNROLL for (int d = 0; d < depth; d++)
                if (s + d < last) add_block<F, COLS, ROWS>(now[d], acts + (s + d) * ActBlock<F>::BYTES, column, table, chain);
            if constexpr (AHEAD) UNROLL for (int d = 0; d < depth; d++) now[d] = next[d];
        }
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int t = 0; t < COLS; t++) {
            const f32 y = add_chains<F::CHAINS>(chain[i][t]);
            const u32 mine = row + (u32)i * wave_rows;
            if (c == (u32)(i * COLS + t) % F::CHAINS && mine < n_out) out[(u64)t * out_stride + mine] = y;
        }
    }
}

// Groups a multiprocessor should hold: it decides how many registers, hence loads in flight, a thread may have.
constexpr int mat_vec_groups(int sums, bool ahead) { return ahead || sums > 8 ? 3 : sums <= 4 ? 5 : 4; }

#define MAT_VEC(format, symbol, cols, rows, ahead)                                                                                    \
    KERNEL_OCC(MAT_VEC_THREADS, mat_vec_groups(cols * rows, ahead))                                                                   \
    mat_vec_##symbol(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,      \
                     const u32* RESTRICT values, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT experts, \
                     u32 share) {                                                                                                     \
        mat_vec<format, cols, rows, ahead>(weights, codes, scales, sums, values, out, blocks, n_out, out_stride, experts, share);     \
    }
// Two rows a thread where reading the activations costs and registers suffice; seven columns are four and three.
#define MAT_VEC_ALL(format, name)                                                                                                     \
    MAT_VEC(format, name##_c1_ahead, 1, 1, true) MAT_VEC(format, name##_c1_r1, 1, 1, false) MAT_VEC(format, name##_c2_r1, 2, 1, false) \
    MAT_VEC(format, name##_c3_r1, 3, 1, false) MAT_VEC(format, name##_c4_r1, 4, 1, false) MAT_VEC(format, name##_c5_r1, 5, 1, false)   \
    MAT_VEC(format, name##_c6_r1, 6, 1, false) MAT_VEC(format, name##_c8_r1, 8, 1, false) MAT_VEC(format, name##_c2_r2, 2, 2, false)   \
    MAT_VEC(format, name##_c3_r2, 3, 2, false) MAT_VEC(format, name##_c4_r2, 4, 2, false)
