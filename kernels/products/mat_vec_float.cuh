// Float weights times up to eight columns of f32 activations: the lane tree of eight (NUMERICS.md 1.4). Eight threads share a
// row, each one partial sum; the repacked row holds a thread's next 16 bytes together (products/repack.rs, float_row).
#pragma once
#include "side/side.cuh"

struct WeightF32 {
    static constexpr u32 EACH = 4;  // values in 16 bytes
    typedef u32 Word;
    static __device__ inline f32 value(const u32 (&v)[4], int i) { return float_of_bits(v[i]); }
    static __device__ inline f32 one(u32 v) { return float_of_bits(v); }
};
struct WeightF16 {
    static constexpr u32 EACH = 8;
    typedef u16 Word;
    static __device__ inline f32 value(const u32 (&v)[4], int i) { return float_of_half((u16)(v[i >> 1] >> 16 * (i & 1))); }
    static __device__ inline f32 one(u16 v) { return float_of_half(v); }
};
struct WeightBF16 {
    static constexpr u32 EACH = 8;
    typedef u16 Word;
    static __device__ inline f32 value(const u32 (&v)[4], int i) { return float_of_bits(i & 1 ? v[i >> 1] & 0xffff0000u : v[i >> 1] << 16); }
    static __device__ inline f32 one(u16 v) { return float_of_bf16(v); }
};

// A tile of activations in shared memory: [column][thread of a row][its values in order], lines apart so that eight threads, which
// read 16 bytes each, meet in no bank.
template <int COLS> struct FloatTile {
    static constexpr u32 VALUES = 4096u / COLS, LINE = VALUES / 8u + 4u;
    f32 x[COLS][8][LINE];
};
// Stages values `from` on of the columns, whose number is a multiple of four; those past the end stay as they are.
template <int COLS, u32 THREADS> DEVICE void stage_floats(FloatTile<COLS>& tile, const f32* RESTRICT x, u32 from, u32 n_in, u32 live) {
    constexpr u32 batch = THREADS == 32 ? 8 : 2;  // loads that a thread has under way
    const u32 count = smaller(n_in - from, FloatTile<COLS>::VALUES);
    NO_UNROLL for (int t = 0; t < COLS; t++) {
        const f32* column = x + (u64)smaller((u32)t, live - 1u) * n_in + from;
        NO_UNROLL for (u32 at = 4u * thread_x(); at < count; at += 4u * THREADS * batch) {
            F4 v[batch];
            UNROLL for (u32 i = 0; i < batch; i++) {
                if (at + 4u * THREADS * i < count) v[i] = *(const F4*)(column + at + 4u * THREADS * i);
            }
            UNROLL for (u32 i = 0; i < batch; i++) {
                const u32 first = at + 4u * THREADS * i, l = first & 7u, n = first >> 3;
                if (first >= count) continue;
                tile.x[t][l][n] = v[i].x, tile.x[t][l + 1u][n] = v[i].y, tile.x[t][l + 2u][n] = v[i].z, tile.x[t][l + 3u][n] = v[i].w;
            }
        }
    }
}

// out[t][row] = W x_t for the columns of a group of the grid's y, COLS each of `live`; those beyond repeat the last. Rows of x are n_in
// apart, rows of out out_stride. A thread loads its weights far ahead: there are few threads where rows are few.
template <class W, int COLS, u32 THREADS>
DEVICE void mat_vec_float(const u8* RESTRICT weights, const f32* RESTRICT x, f32* RESTRICT out, u32 n_in, u32 n_out, u32 out_stride, u32 live) {
    typedef FloatTile<COLS> T;
    SHARED(T, shared, [1]);
    T& tile = shared[0];
    constexpr u32 group = W::EACH * 8u, ahead = THREADS == 32 ? 32 : COLS == 1 ? 16 : COLS < 8 ? 8 : 4;
    static_assert(T::VALUES % (group * ahead) == 0, "tiles are whole rounds of loads");
    const u32 first = block_y() * COLS;
    x += (u64)first * n_in, out += (u64)first * out_stride, live = smaller(live - first, (u32)COLS);
    const u32 row = (block_x() * (THREADS / 32u) + wave()) * 4u + (lane() >> 3), l = lane() & 7u;
    const u8* w = weights + (u64)smaller(row, n_out - 1u) * n_in * sizeof(typename W::Word);
    f32 partial[COLS] = {};
    u32 at = 0;
    if (n_in * (u32)sizeof(typename W::Word) % 16u == 0 && n_in >= group) {
        const U4* from = (const U4*)w + l;  // a group of a row is eight times 16 bytes
        const u32 groups = n_in / group;
        U4 next[ahead];
        UNROLL for (u32 d = 0; d < ahead; d++) {
            if (d < groups) next[d] = load_once(from + 8u * d);
        }
        for (u32 g = 0; g < groups; g += ahead) {
            if (g * group % T::VALUES == 0) {
                barrier();  // nobody reads the tile before
                stage_floats<COLS, THREADS>(tile, x, g * group, n_in, live);
                barrier();
            }
            UNROLL for (u32 d = 0; d < ahead; d++) {
                const u32 v[4] = {next[d].x, next[d].y, next[d].z, next[d].w};
                if (g + d + ahead < groups) next[d] = load_once(from + 8u * (g + d + ahead));
                if (g + d >= groups) continue;
                const u32 line = (g + d) * group % T::VALUES / 8u;
                UNROLL for (int k = 0; k < (int)W::EACH; k += 4) {
                    F4 a[COLS];
                    UNROLL for (int t = 0; t < COLS; t++) a[t] = *(const F4*)&tile.x[t][l][line + k];
                    UNROLL for (int t = 0; t < COLS; t++) {
                        partial[t] = fma_(W::value(v, k), a[t].x, partial[t]);
                        partial[t] = fma_(W::value(v, k + 1), a[t].y, partial[t]);
                        partial[t] = fma_(W::value(v, k + 2), a[t].z, partial[t]);
                        partial[t] = fma_(W::value(v, k + 3), a[t].w, partial[t]);
                    }
                }
            }
        }
        at = groups * group;
    } else {
        // short rows, or of a length that leaves pieces at no round addresses
        for (; at + group <= n_in; at += group) {
            const u8* from = w + at * sizeof(typename W::Word) + l * 16u;
            u32 v[4];
            UNROLL for (int i = 0; i < 4; i++) {
                if constexpr (W::EACH == 4) v[i] = ((const u32*)from)[i];
                else v[i] = ((const u16*)from)[2 * i] | (u32)((const u16*)from)[2 * i + 1] << 16;
            }
            UNROLL for (int k = 0; k < (int)W::EACH; k++) {
                const f32 value = W::value(v, k);
                UNROLL for (int t = 0; t < COLS; t++) partial[t] = fma_(value, x[(u64)smaller((u32)t, live - 1u) * n_in + at + 8u * k + l], partial[t]);
            }
        }
    }
    for (at += l; at < n_in; at += 8u) {
        const f32 value = W::one(((const typename W::Word*)w)[at]);
        UNROLL for (int t = 0; t < COLS; t++) partial[t] = fma_(value, x[(u64)smaller((u32)t, live - 1u) * n_in + at], partial[t]);
    }
    UNROLL for (int t = 0; t < COLS; t++) {
        f32 y = partial[t];
        y = y + lane_xor<4>(y);
        y = y + lane_xor<2>(y);
        y = y + lane_xor<1>(y);
        if (l == 0 && row < n_out && (u32)t < live) out[(u64)t * out_stride + row] = y;
    }
}
#define MAT_VEC_FLOAT(weight, name, cols, threads)                                                                                  \
    KERNEL_OCC(threads, threads == 32 ? 8 : 3)                                                                                              \
    mat_vec_##name(const u8* RESTRICT weights, const f32* RESTRICT x, f32* RESTRICT out, u32 n_in, u32 n_out, u32 out_stride, u32 live) { \
        mat_vec_float<weight, cols, threads>(weights, x, out, n_in, n_out, out_stride, live);                                                       \
    }
// Few rows are spread over as many multiprocessors as go, by groups of one wave.
#define MAT_VEC_FLOAT_ALL(weight, name)                                                        \
    MAT_VEC_FLOAT(weight, name##_c1_split, 1, 32) MAT_VEC_FLOAT(weight, name##_c1, 1, 128)      \
    MAT_VEC_FLOAT(weight, name##_c4, 4, 128) MAT_VEC_FLOAT(weight, name##_c8, 8, 128)
