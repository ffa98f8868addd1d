// Entry points of a format: by matrix instructions in two shapes of tile, 96 rows for 128 tokens and 128 rows for 32 tokens; by
// dot products 128 rows for 64 tokens.
#pragma once
#include "products/gemm/tile.cuh"

#define GEMM_ENTRY(name, MEMORY, F, E, WO, WT, GROUPS)                                                                                     \
    KERNEL_OCC(32 * WO * WT, GROUPS)                                                                                                    \
    name(const u8* RESTRICT weights, i64 expert_bytes, const i8* RESTRICT codes, const f32* RESTRICT scales,                       \
         const i32* RESTRICT sums, const u32* RESTRICT table, const U4* RESTRICT tiles, const u32* RESTRICT act_rows,              \
         const u32* RESTRICT out_rows, f32* RESTRICT out, i32 rows, i32 cols, i32 n) {                                             \
        typedef Gemm<F, E, WO, WT> G;                                                                                              \
        typedef G::Shared Memory;                                                                                                  \
        MEMORY(Memory);                                                                                                            \
        G::run(memory, weights, expert_bytes, table, GemmActs{codes, scales, sums}, GemmItems{tiles, act_rows, out_rows}, out,     \
               (u32)rows, (u32)cols, (u32)n);                                                                                      \
    }
#define GEMM_STATIC(Memory) SHARED(Memory, memory, )
// NVIDIA's wide tiles have more shared memory than a kernel may declare: WIDE_SHARED bytes, which is what products/gemm.rs
// launches them with. Stages are 128 deep from sm_80 on, where a workgroup may have at least 99 KB.
#if STRATA_CUDA
#if STRATA_SM >= 800
#define WIDE_DEPTH 128
#define WIDE_SHARED (97 * 1024)
#else
#define WIDE_DEPTH 64
#define WIDE_SHARED (62 * 1024)
#endif
#define GEMM_WIDE(Memory)                                                     \
    static_assert(sizeof(Memory) <= WIDE_SHARED, "as much as is launched"); \
    DYN_SHARED(Memory, at);                                                   \
    Memory& memory = *at
#else
#define WIDE_DEPTH 64
#define GEMM_WIDE(Memory) GEMM_STATIC(Memory)
#endif
// Three workgroups of the small tile share an NVIDIA multiprocessor's registers.
#define GEMM_DOT(name, F) GEMM_ENTRY(gemm_dot_##name, GEMM_STATIC, F, DotEngine<64>, 4, 2, 1)
#if STRATA_MATRIX
#define GEMM_FORMAT(name, F)                                                     \
    GEMM_ENTRY(gemm_matrix_##name, GEMM_WIDE, F, MatrixEngine<WIDE_DEPTH>, 3, 4, 1) \
    GEMM_ENTRY(gemm_matrix_##name##_32, GEMM_STATIC, F, MatrixEngine<64>, 4, 1, 3)  \
    GEMM_DOT(name, F)
#else
#define GEMM_FORMAT(name, F) GEMM_DOT(name, F)
#endif
