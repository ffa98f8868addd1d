// How a wave multiplies a 32 x 32 tile of outputs: matrix instructions or dot products of four bytes. A lane holds OS rows of
// weights times TS tokens; `row_of` and `token_of` say which. Integer sums are exact, so the order of depths inside a part of
// 32 is free: a lane reads neighbouring bytes of its row, the same for weights and activations. Numbers of rows and tokens are
// stored in slots: a lane's lie together.
#pragma once
#include "common/matrix.cuh"
#include "products/gemm/stage.cuh"

// 1.5 * 2^23 as a float's bits: an integer n in +-2^22 added to them makes the float MAGIC + n.
#define MAGIC_BITS 0x4b400000
#define MAGIC_FLOAT 12582912.0f

template <u32 depth> struct DotEngine {
    static constexpr u32 DEPTH = depth;
    static constexpr int OS = 4, TS = 8;
    static constexpr int TOGETHER = 2;    // parts of a stage multiplied together
    static constexpr bool HALVES = true;  // sums over 16 cost no more than over 32
    static __device__ inline u32 row_of(int i) { return (lane() & 7u) + 8u * i; }
    static __device__ inline u32 token_of(int j) { return (lane() >> 3) + 4u * j; }
    static __device__ inline u32 row_slot(u32 r) { return (r & 7u) * OS + (r >> 3); }
    static __device__ inline u32 first_row_slot() { return (lane() & 7u) * OS; }
    static __device__ inline u32 token_slot(u32 t) { return (t & 3u) * TS + (t >> 2); }
    static __device__ inline u32 first_token_slot() { return (lane() >> 3) * TS; }

    static __device__ inline void load(u32 (&v)[8], const u8* stage, u32 row, int part) {
        UNROLL for (int h = 0; h < 2; h++) {
            U4 x = *(const U4*)(stage + stage_at<depth>(row, 2u * part + h));
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
    // fold(i, j, start(i, j) + the sum over half a part, 16 values).
    template <class Start, class Fold> static __device__ inline void half(const u8* w, const u8* a, int part, int half, Start start, Fold fold) {
        U4 x[OS];
        UNROLL for (int i = 0; i < OS; i++) x[i] = *(const U4*)(w + stage_at<depth>(row_of(i), 2u * part + half));
        UNROLL for (int j = 0; j < TS; j++) {
            const U4 y = *(const U4*)(a + stage_at<depth>(token_of(j), 2u * part + half));
            UNROLL for (int i = 0; i < OS; i++) fold(i, j, dot4(x[i].w, y.w, dot4(x[i].z, y.z, dot4(x[i].y, y.y, dot4(x[i].x, y.x, start(i, j))))));
        }
    }
    static __device__ inline i32 bytes(const U2& x, const U2& y, i32 c) { return dot4(x.y, y.y, dot4(x.x, y.x, c)); }
    static __device__ inline i32 bytes(const U4& x, const U4& y, i32 c) { return dot4(x.w, y.w, dot4(x.z, y.z, dot4(x.y, y.y, dot4(x.x, y.x, c)))); }
    // fold(i, j, MAGIC_BITS + the sum of 8 or 16 products), minima of a block by the digits of the sums of activations.
    template <class Row, class Fold> static __device__ inline void minima(const Row* minima, const Row* low, const Row* high, Fold fold) {
        Row x[OS];
        UNROLL for (int i = 0; i < OS; i++) x[i] = minima[row_of(i)];
        UNROLL for (int j = 0; j < TS; j++) {
            const Row l = low[token_of(j)], h = high[token_of(j)];
            UNROLL for (int i = 0; i < OS; i++) fold(i, j, bytes(x[i], l, bytes(x[i], h, 0) * 256 + MAGIC_BITS));
        }
    }
};

#if STRATA_MATRIX
template <u32 depth> struct MatrixEngine {
    static constexpr u32 DEPTH = depth;
    static constexpr bool HALVES = false;
#if STRATA_CUDA
    // Weights are A: two tiles of 16 rows; activations are B: four tiles of 8 tokens.
    static constexpr int OS = 4, TS = 8;
    // More parts at a time would take more registers than there are.
    static constexpr int TOGETHER = depth == 128u && STRATA_SM < 1000 ? 2 : 1;
    static __device__ inline u32 row_of(int i) { return (lane() >> 2) + 8u * i; }
    static __device__ inline u32 token_of(int j) { return 8u * (j >> 1) + 2u * (lane() & 3u) + (j & 1); }
    static __device__ inline u32 row_slot(u32 r) { return (r & 7u) * OS + (r >> 3); }
    static __device__ inline u32 first_row_slot() { return (lane() >> 2) * OS; }
    static __device__ inline u32 token_slot(u32 t) { return (t >> 1 & 3u) * TS + (t >> 3) * 2u + (t & 1u); }
    static __device__ inline u32 first_token_slot() { return (lane() & 3u) * TS; }
    struct Weights { u32 v[2][4]; };
    struct Acts { u32 v[2][4]; };  // two tiles each
    static __device__ inline Weights load_weights(const u8* stage, int part) {
        const u32 l = lane(), at = stage_at<depth>(l & 15u, l >> 4) ^ 32u * part;
        Weights x;
        UNROLL for (int m = 0; m < 2; m++) nv_ldmatrix4(x.v[m], stage + at + 16u * depth * m);
        return x;
    }
    static __device__ inline Acts load_acts(const u8* stage, int part) {
        const u32 l = lane(), at = stage_at<depth>((l & 7u) + (l >> 4) * 8u, l >> 3 & 1u) ^ 32u * part;
        Acts y;
        UNROLL for (int n = 0; n < 2; n++) nv_ldmatrix4(y.v[n], stage + at + 16u * depth * n);
        return y;
    }
    // 16 bytes a row, a step of 16 depths; or eight, which are read twice, and the second half of the weights is 0.
    struct SmallWeights { u32 v[2][2]; };
    struct SmallActs { u32 v[4]; };
    template <class Row> static __device__ inline u32 word(const Row* rows, u32 row) { return ((const u32*)(rows + row))[lane() & (sizeof(Row) / 4u - 1u)]; }
    template <class Row> static __device__ inline SmallWeights small_weights(const Row* rows) {
        SmallWeights x;
        UNROLL for (int i = 0; i < OS; i++) x.v[i / 2][i % 2] = sizeof(Row) == 8 && lane() & 2u ? 0u : word(rows, row_of(i));
        return x;
    }
    template <class Row> static __device__ inline SmallActs small_acts(const Row* rows) {
        SmallActs y;
        UNROLL for (int n = 0; n < 4; n++) y.v[n] = word(rows, (lane() >> 2) + 8u * n);
        return y;
    }
    // fold(i, j, start(i, j) + the sum) for the lane's outputs of one of the tiles.
    static constexpr int TILES = 8;
    template <class Start, class Fold> static __device__ inline void one(int tile, const Weights& x, const Acts& y, Start start, Fold fold) {
        const int m = tile / 4, n = tile % 4;
        const u32 b[2] = {y.v[n >> 1][2 * (n & 1)], y.v[n >> 1][2 * (n & 1) + 1]};
        i32 c[4];
        UNROLL for (int e = 0; e < 4; e++) c[e] = start(2 * m + (e >> 1), 2 * n + (e & 1));
        nv_mma_s8(c, x.v[m], b);
        UNROLL for (int e = 0; e < 4; e++) fold(2 * m + (e >> 1), 2 * n + (e & 1), c[e]);
    }
    template <class Start, class Fold>
    static __device__ inline void small(int tile, const SmallWeights& x, const SmallActs& y, Start start, Fold fold) {
        const int m = tile / 4, n = tile % 4;
        i32 c[4];
        UNROLL for (int e = 0; e < 4; e++) c[e] = start(2 * m + (e >> 1), 2 * n + (e & 1));
        nv_mma_s8_16(c, x.v[m], y.v[n]);
        UNROLL for (int e = 0; e < 4; e++) fold(2 * m + (e >> 1), 2 * n + (e & 1), c[e]);
    }
    // Half a part, 16 depths, of all rows or tokens.
    static __device__ inline void load_half(u32 (&v)[4], const u8* stage, int part, int half) {
        nv_ldmatrix4(v, stage + (stage_at<depth>(lane(), (u32)half) ^ 32u * part));
    }
    static __device__ inline SmallWeights half_weights(const u8* stage, int part, int half) {
        u32 v[4];
        load_half(v, stage, part, half);
        return SmallWeights{{{v[0], v[1]}, {v[2], v[3]}}};
    }
    static __device__ inline SmallActs half_acts(const u8* stage, int part, int half) {
        SmallActs y;
        load_half(y.v, stage, part, half);
        return y;
    }
    template <class Start, class Fold>
    static __device__ inline void one_half(int tile, const SmallWeights& x, const SmallActs& y, Start start, Fold fold) {
        small(tile, x, y, start, fold);
    }
#else
    // Activations are A, so that a lane has few rows of weights. The halves of a wave share the depths on gfx12; gfx11 repeats them.
    static constexpr int TOGETHER = 2;
    static constexpr int OS = 2, TS = 16, WORDS = STRATA_WMMA == 12 ? 4 : 8;
    static __device__ inline u32 row_of(int i) { return 16u * i + (lane() & 15u); }
    static __device__ inline u32 token_of(int j) { return 16u * (j >> 3) + MatrixS8::c_row(j & 7); }
    static __device__ inline u32 row_slot(u32 r) { return (r & 15u) * OS + (r >> 4); }
    static __device__ inline u32 first_row_slot() { return (lane() & 15u) * OS; }
    static __device__ inline u32 token_slot(u32 t) {
        const u32 half = STRATA_WMMA == 12 ? t >> 3 & 1u : t & 1u, i = STRATA_WMMA == 12 ? t & 7u : t >> 1 & 7u;
        return half * TS + (t >> 4) * 8u + i;
    }
    static __device__ inline u32 first_token_slot() { return (lane() >> 4) * TS; }
    struct Weights { u32 v[2][WORDS]; };
    typedef Weights Acts;
    static __device__ inline Weights load_weights(const u8* stage, int part) {
        Weights x;
        UNROLL for (int m = 0; m < 2; m++) UNROLL for (int q = 0; q < WORDS / 4; q++) {
            const u32 chunk = STRATA_WMMA == 12 ? lane() >> 4 : (u32)q;
            const U4 w = *(const U4*)(stage + stage_at<depth>((lane() & 15u) + 16u * m, 2u * part + chunk));
            x.v[m][4 * q] = w.x, x.v[m][4 * q + 1] = w.y, x.v[m][4 * q + 2] = w.z, x.v[m][4 * q + 3] = w.w;
        }
        return x;
    }
    static __device__ inline Acts load_acts(const u8* stage, int part) { return load_weights(stage, part); }
    // Half a part, 16 depths, as the first of a part's steps.
    static __device__ inline Weights half_weights(const u8* stage, int part, int half) {
        Weights x;
        UNROLL for (int m = 0; m < 2; m++) {
            const u8* at = stage + stage_at<depth>((lane() & 15u) + 16u * m, 2u * part + half);
#if STRATA_WMMA == 12
            const U2 w = *(const U2*)(at + 8u * (lane() >> 4));
            x.v[m][0] = w.x, x.v[m][1] = w.y;
#else
            const U4 w = *(const U4*)at;
            x.v[m][0] = w.x, x.v[m][1] = w.y, x.v[m][2] = w.z, x.v[m][3] = w.w;
#endif
        }
        return x;
    }
    static __device__ inline Acts half_acts(const u8* stage, int part, int half) { return half_weights(stage, part, half); }
    // 16 bytes a row as half a part.
    static __device__ inline Weights small_weights(const U4* rows) {
        Weights x;
        UNROLL for (int m = 0; m < 2; m++) {
            const U4 w = rows[(lane() & 15u) + 16u * m];
            const bool upper = STRATA_WMMA == 12 && lane() >= 16u;
            UNROLL for (int q = 0; q < WORDS; q++) x.v[m][q] = 0u;
            x.v[m][0] = upper ? w.z : w.x, x.v[m][1] = upper ? w.w : w.y;
            if (STRATA_WMMA == 11) x.v[m][2] = w.z, x.v[m][3] = w.w;
        }
        return x;
    }
    static __device__ inline Acts small_acts(const U4* rows) { return small_weights(rows); }
    // Eight bytes a row, at depths 0..8; the others are 0.
    static __device__ inline Weights small_weights(const U2* rows) {
        const bool mine = STRATA_WMMA == 11 || lane() < 16u;
        Weights x;
        UNROLL for (int m = 0; m < 2; m++) {
            const U2 w = rows[(lane() & 15u) + 16u * m];
            UNROLL for (int q = 0; q < WORDS; q++) x.v[m][q] = q < 2 && mine ? q ? w.y : w.x : 0u;
        }
        return x;
    }
    static __device__ inline Acts small_acts(const U2* rows) { return small_weights(rows); }
    template <class Start, class Fold> static __device__ inline void small(int tile, const Weights& x, const Acts& y, Start start, Fold fold) {
        one(tile, x, y, start, fold);
    }
    // fold(i, j, start(i, j) + the sum) for the lane's outputs of one of the tiles.
    static constexpr int TILES = 4;
    template <class Start, class Fold> static __device__ inline void one(int tile, const Weights& x, const Acts& y, Start start, Fold fold) {
        constexpr int N = MatrixS8::A;
        const int t = tile / 2, o = tile % 2;
        i32 c[8];
        UNROLL for (int e = 0; e < 8; e++) c[e] = start(o, 8 * t + e);
        UNROLL for (int k = 0; k < WORDS / N; k++) {
            u32 a[N], b[N];
            UNROLL for (int r = 0; r < N; r++) a[r] = y.v[t][k * N + r], b[r] = x.v[o][k * N + r];
            MatrixS8::multiply(c, a, b);
        }
        UNROLL for (int e = 0; e < 8; e++) fold(o, 8 * t + e, c[e]);
    }
    // fold(i, j, start(i, j) + the sum) over half a part, 16 depths, for the lane's outputs of one of the tiles.
    template <class Start, class Fold>
    static __device__ inline void one_half(int tile, const Weights& x, const Acts& y, Start start, Fold fold) {
        constexpr int N = MatrixS8::A;
        const int t = tile / 2, o = tile % 2;
        i32 c[8];
        UNROLL for (int e = 0; e < 8; e++) c[e] = start(o, 8 * t + e);
        u32 a[N], b[N];
        UNROLL for (int r = 0; r < N; r++) a[r] = y.v[t][r], b[r] = x.v[o][r];
        MatrixS8::multiply(c, a, b);
        UNROLL for (int e = 0; e < 8; e++) fold(o, 8 * t + e, c[e]);
    }
#endif
    template <class Start, class Fold> static __device__ inline void multiply(const Weights& x, const Acts& y, Start start, Fold fold) {
        UNROLL for (int tile = 0; tile < TILES; tile++) one(tile, x, y, start, fold);
    }
    template <class Start, class Fold> static __device__ inline void part(const u8* w, const u8* a, int part, Start start, Fold fold) {
        multiply(load_weights(w, part), load_acts(a, part), start, fold);
    }
    template <class Start, class Fold> static __device__ inline void half(const u8* w, const u8* a, int part, int half, Start start, Fold fold) {
        const auto x = half_weights(w, part, half);
        const auto y = half_acts(a, part, half);
        UNROLL for (int tile = 0; tile < TILES; tile++) one_half(tile, x, y, start, fold);
    }
    // sum += the sum over a part of 256 * high + low.
    static __device__ inline void planes(const u8* low, const u8* high, const u8* a, int part, i32 (&sum)[OS][TS]) {
        const Acts y = load_acts(a, part);
        multiply(load_weights(high, part), y, [](int, int) { return 0; },
                 [&](int i, int j, i32 c) { sum[i][j] = multiply_add24(c, 256, sum[i][j]); });
        multiply(load_weights(low, part), y, [&](int i, int j) { return sum[i][j]; }, [&](int i, int j, i32 c) { sum[i][j] = c; });
    }
    // fold(i, j, MAGIC_BITS + the sum of 8 or 16 products), minima of a block by the digits of the sums of activations. One tile
    // after the other: few sums are held at a time.
    template <class Row, class Fold> static __device__ inline void minima(const Row* minima, const Row* low, const Row* high, Fold fold) {
        const auto x = small_weights(minima);
        const auto upper = small_acts(high), lower = small_acts(low);
        i32 c[OS][TS];
        UNROLL for (int tile = 0; tile < TILES; tile++) {
            small(tile, x, upper, [](int, int) { return 0; }, [&](int i, int j, i32 v) { c[i][j] = v * 256 + MAGIC_BITS; });
            small(tile, x, lower, [&](int i, int j) { return c[i][j]; }, fold);
        }
    }
};
#endif
