// Which column of which matrix tile holds which digit of which query head.
//
// Cells (or value dimensions) are the rows of a product and the digits of the heads its columns, so that a lane gets all
// three digit sums of a (row, head) in its own registers. NVIDIA has tiles of 8 columns: heads 0..7 fill one tile a
// digit; four more heads fit in a tile and a half. AMD has tiles of 16 columns: one a digit, a head a column.
#pragma once
#include "common/matrix.cuh"

#if STRATA_MATRIX
// `G`: the heads of a KV head at most: 8, 12 or 16. `l` is the lane.
template <int G> struct DigitColumns {
    typedef MatrixS8 X;
#if STRATA_CUDA
    static constexpr int tiles = G == 8 ? 3 : G == 12 ? 5 : 6;
    static constexpr int heads = G / 4;  // of a lane's sums
    static constexpr int rows = 2;       // of a lane's sums in a tile
    // The head and digit of the lane's column of B, or digit 3 for none.
    static __device__ inline u32 head(u32 l, int t) {
        u32 n = l >> 2;
        return t < 3 ? n : G == 12 ? 8u + (n >> 1) : 8u + n;
    }
    static __device__ inline u32 digit(u32 l, int t) {
        if (t < 3) return (u32)t;
        if (G == 16) return (u32)(t - 3);
        return t == 3 ? l >> 2 & 1u : l & 4u ? 3u : 2u;
    }
    // The head of sum `s` of the lane.
    static __device__ inline u32 sum_head(u32 l, int s) {
        u32 q = l & 3u;
        return s < 2 ? 2u * q + s : G == 12 ? 8u + q : 6u + 2u * q + s;
    }
    static __device__ inline i32 sum(const i32 (&c)[tiles][X::C], int digit, int row, int s) {
        if (s < 2) return c[digit][2 * row + s];
        if (G == 16) return c[digit + 3][2 * row + s - 2];
        return digit == 2 ? c[4][2 * row] : c[3][2 * row + digit];
    }
    static __device__ inline u32 row(u32 l, int r) { return (l >> 2) + 8u * r; }
#else
    static constexpr int tiles = 3, heads = 1, rows = 8;
    static __device__ inline u32 head(u32 l, int) { return sum_head(l, 0); }
    static __device__ inline u32 digit(u32, int t) { return (u32)t; }
    // A lane beyond the heads repeats the last one.
    static __device__ inline u32 sum_head(u32 l, int) { u32 n = l & 15u; return n < (u32)G ? n : (u32)G - 1u; }
    static __device__ inline i32 sum(const i32 (&c)[tiles][X::C], int digit, int row, int) { return c[digit][row]; }
    static __device__ inline u32 row(u32 l, int r) { return STRATA_WMMA == 12 ? 8u * (l >> 4) + r : 2u * r + (l >> 4); }
#endif
    // Tiles 0..split have the first two of a lane's heads, so that half of the sums need be held at a time.
    static constexpr int split = 3;
    static __device__ inline constexpr int first_tile(int part) { return part ? split : 0; }
    static __device__ inline constexpr int end_tile(int part) { return part ? tiles : split; }
    static __device__ inline constexpr int first_head(int part) { return part ? 2 : 0; }
    static __device__ inline constexpr int end_head(int part) { return part || heads < 2 ? heads : 2; }
    static constexpr int parts = tiles > split ? 2 : 1;
    static constexpr int steps = 64 / X::K;  // depth steps of 64 bytes
    // Where the bytes of depth register (step, r) lie in the 64 of a row. The order of depths is free: an AMD lane takes
    // neighbouring bytes, so that it can load them at once.
    static __device__ inline u32 depth(u32 l, int step, int r) {
#if STRATA_CUDA
        return X::K * step + 16u * r + 4u * (l & 3u);
#else
        return (STRATA_WMMA == 12 ? 32u * (l >> 4) : 0u) + 4u * (X::B * step + r);
#endif
    }
};
#endif
