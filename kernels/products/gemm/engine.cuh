// How a wave multiplies a 32 x 32 tile of outputs: matrix instructions or dot products of four bytes. A lane holds OS rows of
// weights times TS tokens; `row_of` and `token_of` say which. Integer sums are exact, so the order of depths inside a part of
// 32 is free: a lane reads neighbouring bytes of its row, the same for weights and activations.
#pragma once
#include "common/matrix.cuh"
#include "products/gemm/stage.cuh"

// 1.5 * 2^23 as a float's bits: an integer n in +-2^22 added to them makes the float MAGIC + n.
#define MAGIC_BITS 0x4b400000
#define MAGIC_FLOAT 12582912.0f

struct DotEngine {
    static constexpr int OS = 4, TS = 8;
    static constexpr bool HALVES = true;  // sums over 16 cost no more than over 32
    static __device__ inline u32 row_of(int i) { return (lane() & 7u) + 8u * i; }
    static __device__ inline u32 token_of(int j) { return (lane() >> 3) + 4u * j; }

    static __device__ inline void load(u32 (&v)[8], const u8* stage, u32 row, int part) {
        UNROLL for (int h = 0; h < 2; h++) {
            U4 x = *(const U4*)(stage + stage_at(row, 2u * part + h));
            v[4 * h] = x.x, v[4 * h + 1] = x.y, v[4 * h + 2] = x.z, v[4 * h + 3] = x.w;
        }
    }
    // fold(i, j, start(i, j) + the sum over a part) for every output of the lane.
    template <class Start, class Fold> static __device__ inline void part(const u8* w, const u8* a, int part, Start start, Fold fold) {
        u32 x[OS][8], y[8];
        UNROLL for (int i = 0; i < OS; i++) load(x[i], w, row_of(i), part);
        UNROLL for (int j = 0; j < TS; j++) {
            load(y, a, token_of(j), part);
            UNROLL for (int i = 0; i < OS; i++) {
                i32 c = start(i, j);
                UNROLL for (int k = 0; k < 8; k++) c = dot4(x[i][k], y[k], c);
                fold(i, j, c);
            }
        }
    }
    // fold(half, i, j, the sum over 16 values).
    template <class Fold> static __device__ inline void halves(const u8* w, const u8* a, int part, Fold fold) {
        u32 x[OS][8], y[8];
        UNROLL for (int i = 0; i < OS; i++) load(x[i], w, row_of(i), part);
        UNROLL for (int j = 0; j < TS; j++) {
            load(y, a, token_of(j), part);
            UNROLL for (int i = 0; i < OS; i++) UNROLL for (int h = 0; h < 2; h++) {
                i32 c = 0;
                UNROLL for (int k = 4 * h; k < 4 * h + 4; k++) c = dot4(x[i][k], y[k], c);
                fold(h, i, j, c);
            }
        }
    }
    // fold(i, j, the sum of eight products), minima of a block by the digits of the sums of activations.
    template <class Fold> static __device__ inline void minima(const U2* minima, const U2* low, const U2* high, Fold fold) {
        U2 x[OS];
        UNROLL for (int i = 0; i < OS; i++) x[i] = minima[row_of(i)];
        UNROLL for (int j = 0; j < TS; j++) {
            U2 l = low[token_of(j)], h = high[token_of(j)];
            UNROLL for (int i = 0; i < OS; i++) {
                i32 upper = dot4(x[i].y, h.y, dot4(x[i].x, h.x, 0));
                fold(i, j, dot4(x[i].y, l.y, dot4(x[i].x, l.x, upper * 256 + MAGIC_BITS)));
            }
        }
    }
};

#if STRATA_MATRIX
struct MatrixEngine {
    static constexpr bool HALVES = false;
#if STRATA_CUDA
    // Weights are A: two tiles of 16 rows; activations four tiles of 8 tokens. Eight bytes a lane and part.
    static constexpr int OS = 4, TS = 8, WORDS = 2;
    static __device__ inline u32 row_of(int i) { return (lane() >> 2) + 8u * i; }
    static __device__ inline u32 token_of(int j) { return 8u * (j >> 1) + 2u * (lane() & 3u) + (j & 1); }
    static __device__ inline void load(u32 (&v)[WORDS], const u8* stage, u32 first, int part) {
        u32 l = lane();
        U2 x = *(const U2*)(stage + stage_at(first + (l >> 2), 2u * part + (l >> 1 & 1u)) + 8u * (l & 1u));
        v[0] = x.x, v[1] = x.y;
    }
    static constexpr int W_TILES = 4, A_TILES = 4, TILE = 8;  // loads: of 8 rows each
    template <class Start, class Fold>
    static __device__ inline void multiply(const u32 (&x)[W_TILES][WORDS], const u32 (&y)[A_TILES][WORDS], Start start, Fold fold) {
        UNROLL for (int m = 0; m < 2; m++) {
            const u32 a[4] = {x[2 * m][0], x[2 * m + 1][0], x[2 * m][1], x[2 * m + 1][1]};
            UNROLL for (int n = 0; n < 4; n++) {
                i32 c[4];
                UNROLL for (int e = 0; e < 4; e++) c[e] = start(2 * m + (e >> 1), 2 * n + (e & 1));
                nv_mma_s8(c, a, y[n]);
                UNROLL for (int e = 0; e < 4; e++) fold(2 * m + (e >> 1), 2 * n + (e & 1), c[e]);
            }
        }
    }
    static __device__ inline void load_small(u32 (&v)[WORDS], const U2* rows, u32 first) {
        u32 l = lane();
        U2 x = rows[first + (l >> 2)];
        v[0] = l & 2u ? 0u : l & 1u ? x.y : x.x;
        v[1] = 0u;
    }
#else
    // Activations are A, so that a lane has few rows of weights. Lanes of a half share the depths of gfx12; gfx11 repeats them.
    static constexpr int OS = 2, TS = 16, WORDS = STRATA_WMMA == 12 ? 4 : 8;
    static __device__ inline u32 row_of(int i) { return 16u * i + (lane() & 15u); }
    static __device__ inline u32 token_of(int j) { return 16u * (j >> 3) + MatrixS8::c_row(j & 7); }
    static __device__ inline void load(u32 (&v)[WORDS], const u8* stage, u32 first, int part) {
        u32 row = first + (lane() & 15u);
        UNROLL for (int q = 0; q < WORDS / 4; q++) {
            U4 x = *(const U4*)(stage + stage_at(row, 2u * part + (STRATA_WMMA == 12 ? lane() >> 4 : (u32)q)));
            v[4 * q] = x.x, v[4 * q + 1] = x.y, v[4 * q + 2] = x.z, v[4 * q + 3] = x.w;
        }
    }
    static constexpr int W_TILES = 2, A_TILES = 2, TILE = 16;
    template <class Start, class Fold>
    static __device__ inline void multiply(const u32 (&x)[W_TILES][WORDS], const u32 (&y)[A_TILES][WORDS], Start start, Fold fold) {
        constexpr int N = MatrixS8::A;
        UNROLL for (int t = 0; t < 2; t++) UNROLL for (int o = 0; o < 2; o++) {
            i32 c[8];
            UNROLL for (int e = 0; e < 8; e++) c[e] = start(o, 8 * t + e);
            UNROLL for (int k = 0; k < WORDS / N; k++) {
                u32 a[N], b[N];
                UNROLL for (int r = 0; r < N; r++) a[r] = y[t][k * N + r], b[r] = x[o][k * N + r];
                MatrixS8::multiply(c, a, b);
            }
            UNROLL for (int e = 0; e < 8; e++) fold(o, 8 * t + e, c[e]);
        }
    }
    static __device__ inline void load_small(u32 (&v)[WORDS], const U2* rows, u32 first) {
        U2 x = rows[first + (lane() & 15u)];
        bool mine = STRATA_WMMA == 11 || lane() < 16u;
        UNROLL for (int q = 2; q < WORDS; q++) v[q] = 0u;
        v[0] = mine ? x.x : 0u;
        v[1] = mine ? x.y : 0u;
    }
#endif
    template <class Start, class Fold> static __device__ inline void part(const u8* w, const u8* a, int part, Start start, Fold fold) {
        u32 x[W_TILES][WORDS], y[A_TILES][WORDS];
        UNROLL for (int i = 0; i < W_TILES; i++) load(x[i], w, TILE * i, part);
        UNROLL for (int j = 0; j < A_TILES; j++) load(y[j], a, TILE * j, part);
        multiply(x, y, start, fold);
    }
    template <class Fold> static __device__ inline void minima(const U2* minima, const U2* low, const U2* high, Fold fold) {
        u32 x[W_TILES][WORDS], y[A_TILES][WORDS];
        i32 upper[OS][TS];
        UNROLL for (int i = 0; i < W_TILES; i++) load_small(x[i], minima, TILE * i);
        UNROLL for (int j = 0; j < A_TILES; j++) load_small(y[j], high, TILE * j);
        multiply(x, y, [](int, int) { return 0; }, [&](int i, int j, i32 c) { upper[i][j] = c * 256; });
        UNROLL for (int j = 0; j < A_TILES; j++) load_small(y[j], low, TILE * j);
        multiply(x, y, [](int, int) { return MAGIC_BITS; }, [&](int i, int j, i32 c) { fold(i, j, c + upper[i][j]); });
    }
};
#endif
