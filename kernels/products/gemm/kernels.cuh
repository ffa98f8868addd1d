// Entry points: every format in two shapes of tile, a wide one of 8,192 outputs and, for few tokens, 128 rows for 32.
#pragma once
#include "products/gemm/tile.cuh"

#define GEMM_ENTRY(name, F, E, WO, WT)                                                                                             \
    KERNEL(32 * WO * WT)                                                                                                           \
    name(const u8* RESTRICT weights, i64 expert_bytes, const i8* RESTRICT codes, const f32* RESTRICT scales,                       \
         const i32* RESTRICT sums, const u32* RESTRICT table, const U4* RESTRICT tiles, const u32* RESTRICT act_rows, const u32* RESTRICT out_rows,           \
         f32* RESTRICT out, i32 rows, i32 cols, i32 n) {                                                                           \
        typedef Gemm<F, E, WO, WT> G;                                                                                              \
        typedef G::Shared Memory;                                                                                                  \
        SHARED(Memory, memory, );                                                                                                  \
        G::run(memory, weights, expert_bytes, table, GemmActs{codes, scales, sums}, GemmItems{tiles, act_rows, out_rows}, out, (u32)rows, \
               (u32)cols, (u32)n);                                                                                                 \
    }
#define GEMM_FORMAT(form, name, F, E, WO, WT)        \
    GEMM_ENTRY(gemm_##form##_##name, F, E, WO, WT)   \
    GEMM_ENTRY(gemm_##form##_##name##_32, F, E, 4, 1)
// Formats with two planes have wide tiles of 64 rows for 128 tokens: their decoding, the costlier, serves twice the tokens.
#define GEMM_FORMATS(form, E)                    \
    GEMM_FORMAT(form, q8_0, Q8_0, E, 4, 2)       \
    GEMM_FORMAT(form, q4_0, Q4_0, E, 4, 2)       \
    GEMM_FORMAT(form, iq4_nl, IQ4_NL, E, 4, 2)   \
    GEMM_FORMAT(form, q4_k, Q4_K, E, 4, 2)       \
    GEMM_FORMAT(form, q5_k, Q5_K, E, 4, 2)       \
    GEMM_FORMAT(form, q6_k, Q6_K, E, 2, 4)       \
    GEMM_FORMAT(form, iq4_xs, IQ4_XS, E, 4, 2)   \
    GEMM_FORMAT(form, iq3_s, IQ3_S, E, 4, 2)     \
    GEMM_FORMAT(form, iq2_xs, IQ2_XS, E, 2, 4)
