// Matrix instructions under one interface: C[M][N] += A[M][K] B[K][N] by one wave. Who holds what is told by row, column
// and depth of each register, so kernels fill fragments without knowing the vendor.
#pragma once
#include "side/side.cuh"

#if STRATA_CUDA || STRATA_WMMA
#define STRATA_MATRIX 1
#else
#define STRATA_MATRIX 0
#endif

#if STRATA_MATRIX
// Who holds what: a register of A or B holds `each` neighbouring depths of one row or column.
template <int each> struct MatrixLayout {
#if STRATA_CUDA
    static constexpr int M = 16, N = 8, K = 8 * each, A = 4, B = 2, C = 4;
    static __device__ inline u32 a_row(int r) { return (lane() >> 2) + 8u * (r & 1); }
    static __device__ inline u32 a_depth(int r) { return b_depth(r >> 1); }
    static __device__ inline u32 b_column(int) { return lane() >> 2; }
    static __device__ inline u32 b_depth(int r) { return each * (lane() & 3u) + 4u * each * r; }
    static __device__ inline u32 c_row(int i) { return (lane() >> 2) + 8u * (i >> 1); }
    static __device__ inline u32 c_column(int i) { return 2u * (lane() & 3u) + (i & 1); }
#else
    static constexpr int M = 16, N = 16, K = 16, A = (STRATA_WMMA == 12 ? 8 : 16) / each, B = A, C = 8;
    static __device__ inline u32 a_row(int) { return lane() & 15u; }
    static __device__ inline u32 a_depth(int r) { return (STRATA_WMMA == 12 ? 8u * (lane() >> 4) : 0u) + (u32)(each * r); }
    static __device__ inline u32 b_column(int) { return lane() & 15u; }
    static __device__ inline u32 b_depth(int r) { return a_depth(r); }
    static __device__ inline u32 c_row(int i) { return STRATA_WMMA == 12 ? 8u * (lane() >> 4) + i : 2u * i + (lane() >> 4); }
    static __device__ inline u32 c_column(int) { return lane() & 15u; }
#endif
};

// Signed bytes, i32 sums.
struct MatrixS8 : MatrixLayout<4> {
    static __device__ inline void multiply(i32 (&c)[C], const u32 (&a)[A], const u32 (&b)[B]) {
#if STRATA_CUDA
        nv_mma_s8(c, a, b);
#else
        amd_wmma_s8(c, a, b);
#endif
    }
};

// 16-bit floats, f32 sums; not exact across devices.
struct Matrix16 : MatrixLayout<2> {
#if STRATA_CUDA
    static __device__ inline void multiply_f16(f32 (&c)[C], const u32 (&a)[A], const u32 (&b)[B]) { nv_mma_f16(c, a, b); }
#if STRATA_SM >= 800
    static __device__ inline void multiply_bf16(f32 (&c)[C], const u32 (&a)[A], const u32 (&b)[B]) { nv_mma_bf16(c, a, b); }
#endif
#else
    static __device__ inline void multiply_f16(f32 (&c)[C], const u32 (&a)[A], const u32 (&b)[B]) { amd_wmma_f16(c, a, b); }
    static __device__ inline void multiply_bf16(f32 (&c)[C], const u32 (&a)[A], const u32 (&b)[B]) { amd_wmma_bf16(c, a, b); }
#endif
};
#endif
