// Quantised matrix times up to eight columns of activations (NUMERICS.md section 2).
//
// A thread owns one chain of a row: it walks the chain's blocks alone, sums a block in integers and adds it to its chain by
// FMAs, so no lane waits for another until the chains are added at the end. The repacked layout (formats/layout.cuh) puts
// what the threads of a wave read at one time side by side. ROWS rows a thread share what is read of the activations,
// which lie in shared memory; weights are decoded once for all COLS columns. Results do not depend on ROWS or COLS.
#pragma once
#include "products/formats.cuh"

#define MAT_VEC_THREADS 128u

// A block of activations in shared memory: codes, for formats with minima the sums of 32 codes in two balanced bytes (four words:
// low bytes of parts 0..3 and 4..7, then high bytes), the scale. An odd multiple of 16 bytes, so that chains, which read different
// blocks at the same offset, meet in few banks.
template <class F> struct ActBlock {
    static constexpr u32 SUMS = F::WIDTH, SCALE = F::WIDTH + (F::MINIMA ? 16u : 0u), BYTES = F::WIDTH + (F::MINIMA ? 48u : 16u);
};

// Asynchronous copies need no unrolled loop to overlap.
#if STRATA_CUDA && STRATA_SM >= 800
#define STAGE_UNROLL NO_UNROLL
#else
#define STAGE_UNROLL
#endif
template <class F> DEVICE void stage_acts(u8* to, const i8* codes, const f32* scales, const i32* sums, u32 count) {
    typedef ActBlock<F> A;
    constexpr u32 words = F::WIDTH / 16u;
    STAGE_UNROLL for (u32 i = thread_x(); i < count * words; i += MAT_VEC_THREADS)
        async_copy16(to + i / words * A::BYTES + i % words * 16u, (const U4*)codes + i);
    async_commit();
    if constexpr (F::MINIMA) {
        STAGE_UNROLL for (u32 i = thread_x(); i < count * 2u; i += MAT_VEC_THREADS) {
            const U4 four = ((const U4*)sums)[i];
            const u32 s[4] = {four.x, four.y, four.z, four.w};
            u32 low = 0, high = 0;
            UNROLL for (int k = 0; k < 4; k++) {
                low |= (s[k] & 255u) << 8 * k;
                high |= ((s[k] + 128u) >> 8 & 255u) << 8 * k;  // of 256 high + low with a signed low
            }
            u32* at = (u32*)(to + i / 2u * A::BYTES + A::SUMS);
            at[i % 2u] = low, at[2u + i % 2u] = high;
        }
    }
    STAGE_UNROLL for (u32 i = thread_x(); i < count; i += MAT_VEC_THREADS) *(f32*)(to + i * A::BYTES + A::SCALE) = scales[i];
    async_wait<0>();
}

// Which blocks a thread walks: those of chain c, first up to last, of `row` and rows 32 / CHAINS further.
struct Walk {
    const u8* weights;
    u32 blocks, padded, row, c, first, last;
};
// The blocks of chain c.
template <class F> DEVICE void chain_range(u32 c, u32 blocks, u32& first, u32& last) {
#if STRATA_BROKEN == 2  // half as many chains, for the suite's negative control
    first = c < F::CHAINS / 2 ? chain_start<F::CHAINS>(2u * c, blocks) : blocks;
    last = c < F::CHAINS / 2 ? chain_start<F::CHAINS>(2u * c + 2u, blocks) : blocks;
#else
    first = chain_start<F::CHAINS>(c, blocks), last = chain_start<F::CHAINS>(c + 1u, blocks);
#endif
}
// The chain that is added k-th.
DEVICE u32 chain_in_order(u32 k) {
#if STRATA_BROKEN == 1  // chains 1 and 2 swapped, for the suite's negative control
    return k == 1u ? 2u : k == 2u ? 1u : k;
#else
    return k;
#endif
}
template <class F> DEVICE Place block_at(const Walk& k, int i, u32 s) {
    const u32 row = smaller(k.row + (u32)i * (32u / F::CHAINS), k.padded - 1u);  // rows beyond the end repeat the last
#if STRATA_BROKEN == 2
    return place_of<F>(k.weights, row, k.blocks, s);
#else
    return place<F>(k.weights, row, k.blocks, k.c, s - k.first);
#endif
}
// A block of each of a thread's rows, whole or `parts` of its parts, as loaded: every load is under way before the first is used.
template <class F, int ROWS, int parts> struct Blocks {
    typename F::Head head[ROWS];
    typename F::Part part[parts][ROWS];
};
// Loads blocks s, s + 1, ... as far as the chain goes.
template <class F, int ROWS, int depth> DEVICE void load_blocks(Blocks<F, ROWS, F::PARTS> (&to)[depth], const Walk& k, u32 s) {
    UNROLL for (int d = 0; d < depth; d++) {
        if (s + d >= k.last) continue;
        UNROLL for (int i = 0; i < ROWS; i++) {
            const Place at = block_at<F>(k, i, s + d);
            to[d].head[i] = F::head(at);
            UNROLL for (int part = 0; part < (int)F::PARTS; part++) to[d].part[part][i] = F::load(at, part);
        }
    }
}

// Adds parts to the sums of a block; `acts` are their codes in column 0, columns are `column` bytes apart.
template <class F, int COLS, int ROWS, int parts>
DEVICE void add_parts(i32 (&isum)[ROWS][COLS], const Blocks<F, ROWS, parts>& b, const u8* acts, u32 column) {
    UNROLL for (int part = 0; part < parts; part++) {
        u32 w[ROWS][8];
        UNROLL for (int i = 0; i < ROWS; i++) F::decode(b.part[part][i], part, w[i], nullptr);
        UNROLL for (int t = 0; t < COLS; t++) {
            const u8* a = acts + t * column + 32 * part;
            const U4 x = *(const U4*)a, y = *(const U4*)(a + 16);
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
            }
        }
    }
}
// Adds a block's sums to the chains.
template <class F, int COLS, int ROWS>
DEVICE void add_block(f32 (&chain)[ROWS][COLS], const i32 (&isum)[ROWS][COLS], const typename F::Head (&head)[ROWS], const u8* acts, u32 column) {
    typedef ActBlock<F> A;
    UNROLL for (int t = 0; t < COLS; t++) {
        const f32 scale = *(const f32*)(acts + t * column + A::SCALE);
        UNROLL for (int i = 0; i < ROWS; i++) {
            chain[i][t] = fma_(head[i].d * scale, float_of_int(isum[i][t] >> F::SHIFT), chain[i][t]);
            if constexpr (F::MINIMA) {
                const U4 sums = *(const U4*)(acts + t * column + A::SUMS);
                const i32 low = dot4(F::minima(head[i], 1), sums.y, dot4(F::minima(head[i], 0), sums.x, 0));
                const i32 high = dot4(F::minima(head[i], 1), sums.w, dot4(F::minima(head[i], 0), sums.z, 0));
                chain[i][t] = fma_(-(F::dmin(head[i]) * scale), float_of_int(256 * high + low), chain[i][t]);
            }
        }
    }
}
// Walks a chain with whole blocks in registers: few columns, which wait for memory.
template <class F, int COLS, int ROWS>
DEVICE void walk_blocks(f32 (&chain)[ROWS][COLS], const Walk& k, const u8* acts, u32 column) {
    constexpr int depth = F::WIDTH == 256 ? 1 : COLS < 4 ? 4 : 2;  // narrow blocks are few bytes, so several are loaded at a time
    Blocks<F, ROWS, F::PARTS> now[depth];
    for (u32 s = k.first; s < k.last; s += depth) {
        load_blocks<F>(now, k, s);
        UNROLL for (int d = 0; d < depth; d++) {
            if (s + d >= k.last) continue;
            const u8* a = acts + (s + d) * ActBlock<F>::BYTES;
            i32 isum[ROWS][COLS] = {};
            add_parts<F>(isum, now[d], a, column);
            add_block<F>(chain, isum, now[d].head, a, column);
        }
    }
}
// Walks a chain of wide blocks by halves: many columns, which wait for arithmetic.
template <class F, int COLS, int ROWS>
DEVICE void walk_halves(f32 (&chain)[ROWS][COLS], const Walk& k, const u8* acts, u32 column) {
    constexpr int parts = F::PARTS / 2;
    for (u32 s = k.first; s < k.last; s++) {
        const u8* a = acts + s * ActBlock<F>::BYTES;
        Place at[ROWS];
        typename F::Head head[ROWS];
        Blocks<F, ROWS, parts> half;
        UNROLL for (int i = 0; i < ROWS; i++) at[i] = block_at<F>(k, i, s), half.head[i] = head[i] = F::head(at[i]);
        i32 isum[ROWS][COLS] = {};
        NO_UNROLL for (int h = 0; h < 2; h++) {
            UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int part = 0; part < parts; part++) half.part[part][i] = F::load(at[i], parts * h + part);
            add_parts<F>(isum, half, a + 32 * parts * h, column);
            UNROLL for (int i = 0; i < ROWS; i++) F::second_half(half.head[i]);
        }
        add_block<F>(chain, isum, head, a, column);
    }
}

// The sum of a row's chains in order; `rows` rows lie side by side in the wave.
template <u32 chains> DEVICE f32 add_chains(f32 chain) {
    constexpr u32 rows = 32u / chains;
    const u32 r = lane() % rows;
    f32 y = lane_get(chain, r);
    UNROLL for (u32 k = 1; k < chains; k++) y = y + lane_get(chain, chain_in_order(k) * rows + r);
    return y;
}

// out[t][row] = W x_t for `live` of COLS columns; out rows are out_stride apart. The rest of the columns are summed from whatever
// shared memory holds and left. Formats with a table have the split kernels only.
template <class F, int COLS, int ROWS>
DEVICE void mat_vec(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,
                    f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, u32 live) {
    static_assert(F::TABLE == 0);
    constexpr u32 wave_rows = 32u / F::CHAINS, group_rows = MAT_VEC_THREADS / 32u * wave_rows * ROWS;
    DYN_SHARED(u8, acts);
    const u32 padded = (n_out + GROUP_ROWS - 1u) / GROUP_ROWS * GROUP_ROWS;
    stage_acts<F>(acts, codes, scales, sums, blocks * live);
    barrier();

    const u32 c = lane() / wave_rows, r = lane() % wave_rows, column = blocks * ActBlock<F>::BYTES;
    u32 first, last;
    chain_range<F>(c, blocks, first, last);
    for (u32 tile = block_x() * group_rows; tile < padded; tile += grid_x() * group_rows) {
        const u32 row = tile + wave() * wave_rows * ROWS + r;
        f32 chain[ROWS][COLS] = {};
        const Walk walk = {weights, blocks, padded, row, c, first, last};
        if constexpr (F::PARTS == 1 || COLS < 4) walk_blocks<F>(chain, walk, acts, column);
        else walk_halves<F>(chain, walk, acts, column);
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int t = 0; t < COLS; t++) {
            const f32 y = add_chains<F::CHAINS>(chain[i][t]);
            const u32 mine = row + (u32)i * wave_rows;
            if (c == (u32)(i * COLS + t) % F::CHAINS && mine < n_out && (u32)t < live) out[(u64)t * out_stride + mine] = y;
        }
    }
}

// Groups a multiprocessor should hold: it decides how many registers, hence loads in flight, a thread may have.
constexpr int mat_vec_groups(int sums) { return sums <= 4 ? 5 : 4; }

#define MAT_VEC(format, symbol, cols, rows)                                                                                           \
    KERNEL_OCC(MAT_VEC_THREADS, mat_vec_groups(cols * rows))                                                                          \
    mat_vec_##symbol(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales, const i32* RESTRICT sums,      \
                     const u32* RESTRICT, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, const i32* RESTRICT, u32, u32 live) { \
        mat_vec<format, cols, rows>(weights, codes, scales, sums, out, blocks, n_out, out_stride, live);                              \
    }
// Kernels for formats of large matrices: two columns; three and four, with two rows a thread; five to eight.
#define MAT_VEC_ROWS(format, name) MAT_VEC(format, name##_c2_r1, 2, 1) MAT_VEC(format, name##_c4_r2, 4, 2) MAT_VEC(format, name##_c8_r1, 8, 1)
