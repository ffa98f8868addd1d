// Rows of keys and values as floats, by format: what a lane holds raw, and its floats. Loads come first, decoding later.
#pragma once
#include "attention/common.cuh"

// Eight neighbouring values 8 L ..= 8 L + 7 of a key row, and four values of a value row by a thread of 64: the values
// that `dim` names. A row below 0 gives zeros.
struct HalfRows {
    static constexpr bool rotated = false;
    struct Eight { U4 h; };
    struct Four { U2 h; };
    static __device__ inline Eight eight(const u8* RESTRICT rows, const u16* RESTRICT, i32 row) {
        return Eight{*(const U4*)(rows + (u64)(u32)(row < 0 ? 0 : row) * 512u + 16u * lane())};
    }
    static __device__ inline void decode(const Eight& e, f32 (&x)[8]) {
        u32 w[4] = {e.h.x, e.h.y, e.h.z, e.h.w};
        UNROLL for (int i = 0; i < 4; i++) {
            x[2 * i] = float_of_half((u16)w[i]);
            x[2 * i + 1] = float_of_half((u16)(w[i] >> 16));
        }
    }
    static __device__ inline u32 dim(u32 t, int i) { return 4u * t + i; }
    static __device__ inline Four four(const u8* RESTRICT rows, const u16* RESTRICT, i32 row, u32 t) {
        U2 h = *(const U2*)(rows + (u64)(u32)(row < 0 ? 0 : row) * 512u + 8u * t);
        u32 keep = row < 0 ? 0u : ~0u;
        return Four{U2{h.x & keep, h.y & keep}};
    }
    static __device__ inline void decode(const Four& f, u32, f32 (&x)[4]) {
        x[0] = float_of_half((u16)f.h.x);
        x[1] = float_of_half((u16)(f.h.x >> 16));
        x[2] = float_of_half((u16)f.h.y);
        x[3] = float_of_half((u16)(f.h.y >> 16));
    }
};

struct Q4Rows {
    static constexpr bool rotated = true;
    struct Eight { u32 low, high; u32 d; };
    struct Four { u32 codes, d; };
    static __device__ inline Eight eight(const u8* RESTRICT rows, const u16* RESTRICT, i32 row) {
        const u16* block = (const u16*)(rows + (u64)(u32)(row < 0 ? 0 : row) * Q4_ROW + 18u * (lane() >> 2));
        const u16* codes = block + 1 + 4u * (lane() & 1u);
        return Eight{codes[0] | (u32)codes[1] << 16, codes[2] | (u32)codes[3] << 16, block[0]};
    }
    static __device__ inline void decode(const Eight& e, f32 (&x)[8]) {
        u32 shift = lane() & 2u ? 4u : 0u;
        u32 w[2] = {e.low >> shift, e.high >> shift};
        f32 d = float_of_half((u16)e.d);
        UNROLL for (int i = 0; i < 8; i++) x[i] = float_of_int((i32)(w[i >> 2] >> 8 * (i & 3) & 15u) - 8) * d;
    }
    // two bytes of a block: j, j + 1, j + 16, j + 17
    static __device__ inline u32 dim(u32 t, int i) { return 32u * (t >> 3) + 2u * (t & 7u) + (i & 1) + 16u * (i >> 1); }
    static __device__ inline Four four(const u8* RESTRICT rows, const u16* RESTRICT, i32 row, u32 t) {
        const u16* block = (const u16*)(rows + (u64)(u32)(row < 0 ? 0 : row) * Q4_ROW + 18u * (t >> 3));
        return Four{block[1u + (t & 7u)], row < 0 ? 0u : block[0]};
    }
    static __device__ inline void decode(const Four& f, u32, f32 (&x)[4]) {
        f32 d = float_of_half((u16)f.d);
        UNROLL for (int i = 0; i < 4; i++) x[i] = float_of_int((i32)(f.codes >> (8 * (i & 1) + 4 * (i >> 1)) & 15u) - 8) * d;
    }
};

// int8 rows in the float order: for errors and speed only, the definition of int8 is by digits.
struct Int8Rows {
    static constexpr bool rotated = false;
    struct Eight { U2 codes; u32 s; };
    struct Four { u32 codes, s; };
    static __device__ inline Eight eight(const u8* RESTRICT rows, const u16* RESTRICT scales, i32 row) {
        u64 r = (u32)(row < 0 ? 0 : row);
        return Eight{*(const U2*)(rows + r * HEAD_DIM + 8u * lane()), scales[r * SCALES + (lane() >> 3)]};
    }
    static __device__ inline void decode(const Eight& e, f32 (&x)[8]) {
        f32 s = float_of_half((u16)e.s);
        UNROLL for (int i = 0; i < 8; i++) x[i] = float_of_int((i32)(i8)((i < 4 ? e.codes.x : e.codes.y) >> 8 * (i & 3))) * s;
    }
    static __device__ inline u32 dim(u32 t, int i) { return 4u * t + i; }
    static __device__ inline Four four(const u8* RESTRICT rows, const u16* RESTRICT scales, i32 row, u32 t) {
        u64 r = (u32)(row < 0 ? 0 : row);
        u32 s = scales[r * SCALES + (t >> 4)];
        return Four{*(const u32*)(rows + r * HEAD_DIM + 4u * t), row < 0 ? 0u : s};
    }
    static __device__ inline void decode(const Four& f, u32, f32 (&x)[4]) {
        f32 s = float_of_half((u16)f.s);
        UNROLL for (int i = 0; i < 4; i++) x[i] = float_of_int((i32)(i8)(f.codes >> 8 * i)) * s;
    }
};

// Query heads as floats in shared memory, F4[head][2][32]: lane L's eight values in two units.
constexpr u32 QUERY_UNITS = GROUP_MAX * 64;

// Scores of cells `wave`, `wave` + 8, ... (eight a wave; 256 threads): the eight key rows share each read of a query,
// two heads a step, whose 16 sums are reduced together: every level halves the values a lane carries, in the tree of 16,
// 8, 4, 2, 1. Lane L ends with head L >> 4 of the two, cell (L >> 1) & 7.
template <class Rows> DEVICE void float_scores(const typename Rows::Eight (&raw)[8], const F4* query, u32 heads, f32* scores) {
    f32 k[8][8];
    UNROLL for (int c = 0; c < 8; c++) Rows::decode(raw[c], k[c]);
    u32 l = lane(), w = wave();
    bool b16 = l & 16u, b8 = l & 8u, b4 = l & 4u, b2 = l & 2u;
    NO_UNROLL for (u32 h = 0; h < heads; h += 2) {
        f32 s[16];
        UNROLL for (u32 i = 0; i < 2; i++) {
            F4 a = query[(h + i) * 64u + l], b = query[(h + i) * 64u + 32u + l];
            UNROLL for (int c = 0; c < 8; c++) {
                f32 x = k[c][0] * a.x;
                x = fma_(k[c][1], a.y, x);
                x = fma_(k[c][2], a.z, x);
                x = fma_(k[c][3], a.w, x);
                x = fma_(k[c][4], b.x, x);
                x = fma_(k[c][5], b.y, x);
                x = fma_(k[c][6], b.z, x);
                s[8 * i + c] = fma_(k[c][7], b.w, x);
            }
        }
        UNROLL for (int i = 0; i < 8; i++) s[i] = (b16 ? s[i + 8] : s[i]) + lane_xor<16>(b16 ? s[i] : s[i + 8]);
        UNROLL for (int i = 0; i < 4; i++) s[i] = (b8 ? s[i + 4] : s[i]) + lane_xor<8>(b8 ? s[i] : s[i + 4]);
        UNROLL for (int i = 0; i < 2; i++) s[i] = (b4 ? s[i + 2] : s[i]) + lane_xor<4>(b4 ? s[i] : s[i + 2]);
        f32 d = (b2 ? s[1] : s[0]) + lane_xor<2>(b2 ? s[0] : s[1]);
        d = d + lane_xor<1>(d);
        if (!(l & 1u)) scores[score_at(h + (l >> 4), w + 8u * (l >> 1 & 7u))] = d * 0.0625f;
    }
}

// Weights for float_values: [4][64][4], head `HEADS * set + i` of cell c at [set][c][i].
template <u32 HEADS> DEVICE void store_weights(const f32 (&p)[4], u32 head, u32 j, f32* weights) {
    u32 set = head / HEADS, i = head - set * HEADS;
    UNROLL for (u32 k = 0; k < 4; k++) weights[(set * CHUNK + j + 16u * k) * 4u + i] = p[k];
}
// Weighted values of HEADS heads and four dimensions a thread (256 threads, set = thread / 64), cells in order.
template <class Rows, u32 HEADS>
DEVICE void float_values(const u8* RESTRICT rows, const u16* RESTRICT scales, const i32* physical, u32 cells, const F4* weights, f32 (&acc)[HEADS][4]) {
    constexpr u32 STEP = 8;
    u32 t = thread_x() & 63u;
    const F4* p = weights + (thread_x() >> 6) * CHUNK;
    UNROLL for (u32 h = 0; h < HEADS; h++) UNROLL for (int i = 0; i < 4; i++) acc[h][i] = 0.0f;
    typename Rows::Four next[STEP];
    UNROLL for (u32 c = 0; c < STEP; c++) next[c] = Rows::four(rows, scales, physical[c], t);
    // cells past the selection have rows below 0 and weigh nothing
    NO_UNROLL for (u32 base = 0; base < cells; base += STEP) {
        typename Rows::Four now[STEP];
        u32 ahead = base + STEP < CHUNK ? base + STEP : base;
        UNROLL for (u32 c = 0; c < STEP; c++) {
            now[c] = next[c];
            next[c] = Rows::four(rows, scales, physical[ahead + c], t);
        }
        UNROLL for (u32 c = 0; c < STEP; c++) {
            f32 v[4];
            Rows::decode(now[c], t, v);
            F4 w = p[base + c];
            f32 e[4] = {w.x, w.y, w.z, w.w};
            UNROLL for (u32 h = 0; h < HEADS; h++) UNROLL for (int i = 0; i < 4; i++) acc[h][i] = fma_(e[h], v[i], acc[h][i]);
        }
    }
}
