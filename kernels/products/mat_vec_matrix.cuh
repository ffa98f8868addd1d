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
    u32 v;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q)}; }
    __device__ inline void codes(u32, u32& low, u32& high) const { low = v & 0x0f0f0f0fu, high = v >> 4 & 0x0f0f0f0fu; }
};
template <> struct MatrixWord<Q5_K> {
    u32 v, h;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q), piece<u32>(p, 144u + 4u * part)}; }
    __device__ inline void codes(u32 q, u32& low, u32& high) const {
        low = (v & 0x0f0f0f0fu) | (h << (4u - q) & 0x10101010u);
        high = (v >> 4 & 0x0f0f0f0fu) | (h >> q & 0x10101010u);
    }
};
template <> struct MatrixWord<Q6_K> {
    u32 v;
    U2 h;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q), piece<U2>(p, 128u + 8u * part)}; }
    __device__ inline void codes(u32 q, u32& low, u32& high) const {
        low = ((v << 2 & 0x3c3c3c3cu) ^ 0x80808080u) ^ (h.x << (6u - 2u * q) & 0xc0c0c0c0u);
        high = ((v >> 2 & 0x3c3c3c3cu) ^ 0x80808080u) ^ (h.y << (6u - 2u * q) & 0xc0c0c0c0u);
    }
};
template <> struct MatrixWord<IQ4_XS> {
    u32 v;
    static __device__ inline MatrixWord load(const Place& p, int part, u32 q) { return MatrixWord{word_at(p, part, q)}; }
    __device__ inline void codes(u32, u32& low, u32& high) const {
        const u32 table[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
        nibble_lookup16(table, v, low, high);
    }
};

// Adds block s of rows row and row + 8 to the chains: [row g, row g + 8][column 2 q, 2 q + 1].
template <class F> DEVICE void matrix_block(f32 (&chain)[4], const Walk& k, u32 s, const u8* acts, u32 column) {
    typedef ActBlock<F> A;
    const u32 g = lane() >> 2, q = lane() & 3u;
    typename F::Head head[2];
    MatrixWord<F> raw[F::PARTS][2];
    UNROLL for (int i = 0; i < 2; i++) {
        Walk mine = k;
        mine.row = k.row + 8u * (u32)i;
        const Place at = block_at<F>(mine, 0, s);
        head[i] = F::head(at);
        UNROLL for (int part = 0; part < (int)F::PARTS; part++) raw[part][i] = MatrixWord<F>::load(at, part, q);
    }
    i32 isum[4] = {};
    UNROLL for (int part = 0; part < (int)F::PARTS; part++) {
        u32 a[4];
        UNROLL for (int i = 0; i < 2; i++) raw[part][i].codes(q, a[i], a[2 + i]);
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
        const Walk walk = {weights, blocks, padded, tile + g, c, first, last};
        f32 chain[4] = {};
        for (u32 s = first; s < last; s++) matrix_block<F>(chain, walk, s, acts + s * ActBlock<F>::BYTES, column);
        UNROLL for (int i = 0; i < 4; i++) chains[c][2u * q + (i & 1)][g + 8u * (i >> 1)] = chain[i];
        barrier();
        const u32 t = thread_x() >> 4, row = thread_x() & 15u;
        f32 y = chains[0][t][row];
        UNROLL for (u32 k = 1; k < F::CHAINS; k++) y = y + chains[chain_in_order(k)][t][row];
        if (t < live && tile + row < n_out) out[(u64)t * out_stride + tile + row] = y;
        barrier();
    }
}

// Groups a multiprocessor holds: six would cost sm_80 to sm_89 spills.
#if STRATA_SM >= 900
#define MATRIX_HELD 6
#else
#define MATRIX_HELD 5
#endif
#define MAT_VEC_MATRIX(format, name)                                                                                                   \
    KERNEL_OCC(MAT_VEC_THREADS, MATRIX_HELD)                                                                                           \
    mat_vec_##name##_c8_matrix(const u8* RESTRICT weights, const i8* RESTRICT codes, const f32* RESTRICT scales,                       \
                               const i32* RESTRICT sums, const u32* RESTRICT, f32* RESTRICT out, u32 blocks, u32 n_out, u32 out_stride, \
                               const i32* RESTRICT, u32, u32 live) {                                                                   \
        mat_vec_matrix<format>(weights, codes, scales, sums, out, blocks, n_out, out_stride, live);                                    \
    }
#else
#define MAT_VEC_MATRIX(format, name)
#endif
