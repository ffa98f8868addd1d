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

// out[t][row] = W x_t for `live` of COLS columns, the rest repeat the last; rows of x are n_in apart, rows of out out_stride.
template <class W, int COLS>
DEVICE void mat_vec_float(const u8* RESTRICT weights, const f32* RESTRICT x, f32* RESTRICT out, u32 n_in, u32 n_out, u32 out_stride, u32 live) {
    constexpr u32 group = W::EACH * 8u;
    const u32 row = (block_x() * 4u + wave()) * 4u + (lane() >> 3), l = lane() & 7u;
    const u8* w = weights + (u64)smaller(row, n_out - 1u) * n_in * sizeof(typename W::Word);
    const bool aligned = n_in * (u32)sizeof(typename W::Word) % 16u == 0;
    const f32* column[COLS];
    UNROLL for (int t = 0; t < COLS; t++) column[t] = x + (u64)smaller((u32)t, live - 1u) * n_in;
    f32 partial[COLS] = {};
    u32 at = 0;
    // the loads of several groups are under way before the first is used
    constexpr int ahead = COLS == 1 ? 8 : COLS < 8 ? 2 : 1;
    if (aligned) {
        for (; at + ahead * group <= n_in; at += ahead * group) {
            U4 q[ahead];
            UNROLL for (int d = 0; d < ahead; d++) q[d] = load_once((const U4*)(w + (at + d * group) * sizeof(typename W::Word) + l * 16u));
            UNROLL for (int d = 0; d < ahead; d++) {
                const u32 v[4] = {q[d].x, q[d].y, q[d].z, q[d].w};
                UNROLL for (int k = 0; k < (int)W::EACH; k++) {
                    const f32 value = W::value(v, k);
                    UNROLL for (int t = 0; t < COLS; t++) partial[t] = fma_(value, column[t][at + d * group + 8u * k + l], partial[t]);
                }
            }
        }
    }
    for (; at + group <= n_in; at += group) {
        const u8* from = w + at * sizeof(typename W::Word) + l * 16u;
        u32 v[4];
        if (aligned) {
            const U4 q = load_once((const U4*)from);
            v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        } else {
            UNROLL for (int i = 0; i < 4; i++) {
                if constexpr (W::EACH == 4) v[i] = ((const u32*)from)[i];
                else v[i] = ((const u16*)from)[2 * i] | (u32)((const u16*)from)[2 * i + 1] << 16;
            }
        }
        UNROLL for (int k = 0; k < (int)W::EACH; k++) {
            const f32 value = W::value(v, k);
            UNROLL for (int t = 0; t < COLS; t++) partial[t] = fma_(value, column[t][at + 8u * k + l], partial[t]);
        }
    }
    for (at += l; at < n_in; at += 8u) {
        const f32 value = W::one(((const typename W::Word*)w)[at]);
        UNROLL for (int t = 0; t < COLS; t++) partial[t] = fma_(value, column[t][at], partial[t]);
    }
    UNROLL for (int t = 0; t < COLS; t++) {
        f32 y = partial[t];
        y = y + lane_xor<4>(y);
        y = y + lane_xor<2>(y);
        y = y + lane_xor<1>(y);
        if (l == 0 && row < n_out && (u32)t < live) out[(u64)t * out_stride + row] = y;
    }
}
#define MAT_VEC_FLOAT(weight, name, cols)                                                                                            \
    KERNEL_OCC(128, 4)                                                                                                               \
    mat_vec_##name##_c##cols(const u8* RESTRICT weights, const f32* RESTRICT x, f32* RESTRICT out, u32 n_in, u32 n_out, u32 out_stride, u32 live) { \
        mat_vec_float<weight, cols>(weights, x, out, n_in, n_out, out_stride, live);                                                       \
    }
#define MAT_VEC_FLOAT_ALL(weight, name) MAT_VEC_FLOAT(weight, name, 1) MAT_VEC_FLOAT(weight, name, 2) MAT_VEC_FLOAT(weight, name, 4) MAT_VEC_FLOAT(weight, name, 8)
