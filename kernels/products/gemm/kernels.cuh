// Entry points of a format: by matrix instructions in two shapes of tile, a wide one and 128 rows for 32 tokens; by dot products
// 128 rows for 64 tokens.
#pragma once
#include "products/gemm/tile.cuh"

#define GEMM_ENTRY(name, F, E, WO, WT)                                                                                             \
    KERNEL_OCC(32 * WO * WT, 1)                                                                                                       \
    name(const u8* RESTRICT weights, i64 expert_bytes, const i8* RESTRICT codes, const f32* RESTRICT scales,                       \
         const i32* RESTRICT sums, const u32* RESTRICT table, const U4* RESTRICT tiles, const u32* RESTRICT act_rows, const u32* RESTRICT out_rows,           \
         f32* RESTRICT out, i32 rows, i32 cols, i32 n) {                                                                           \
        typedef Gemm<F, E, WO, WT> G;                                                                                              \
        typedef G::Shared Memory;                                                                                                  \
        SHARED(Memory, memory, );                                                                                                  \
        G::run(memory, weights, expert_bytes, table, GemmActs{codes, scales, sums}, GemmItems{tiles, act_rows, out_rows}, out, (u32)rows, \
               (u32)cols, (u32)n);                                                                                                 \
    }
// WO and WT of the wide tile: formats with 32-wide blocks hold two floats an output and fit 168 registers a lane, twelve waves on
// an NVIDIA multiprocessor; the others hold one or two integers more and have eight waves: 128 rows for 64 tokens, or, where
// two planes make decoding the costlier part, 64 rows for 128.
#if STRATA_MATRIX
#define GEMM_FORMAT(name, F, WO, WT)                          \
    GEMM_ENTRY(gemm_matrix_##name, F, MatrixEngine, WO, WT)   \
    GEMM_ENTRY(gemm_matrix_##name##_32, F, MatrixEngine, 4, 1) \
    GEMM_ENTRY(gemm_dot_##name, F, DotEngine, 4, 2)
#else
#define GEMM_FORMAT(name, F, WO, WT) GEMM_ENTRY(gemm_dot_##name, F, DotEngine, 4, 2)
#endif
