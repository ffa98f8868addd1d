// Integer-digit attention on matrix instructions: tiles of q.k and of weights x values for one wave. Heads are the rows
// of A. Depths may be taken in any order, for the sums are exact: each lane takes its depths of a 64-wide stretch as
// one run of words, so that it loads 16 bytes at a time.
#pragma once
#include "attention/common.cuh"
#include "common/matrix.cuh"

#if STRATA_MATRIX
typedef MatrixS8 Tile;
// Lanes that share a row's 64 depths, words of them a lane, steps of the matrix instruction over 64 depths.
constexpr u32 TILE_PARTS = STRATA_CUDA ? 4 : STRATA_WMMA == 12 ? 2 : 1;
constexpr u32 TILE_WORDS = 16 / TILE_PARTS;
constexpr u32 TILE_STEPS = 64 / Tile::K;
static_assert(TILE_STEPS * Tile::B == TILE_WORDS, "a lane's words are its B registers");

DEVICE u32 tile_part() { return STRATA_CUDA ? lane() & 3u : STRATA_WMMA == 12 ? lane() >> 4 : 0u; }

// Fragments of A for 64 depths: `row` gives 16 words of a head, whose 16-byte units it may permute. A row beyond the
// heads reads another's words: its sums are never stored.
struct TileRows {
    static constexpr u32 n = STRATA_CUDA ? 2 : 1;  // rows a lane
    u32 w[n][TILE_WORDS];
};
DEVICE u32 tile_row(u32 i) {
    u32 r = Tile::a_row((int)i);
    return r < GROUP_MAX ? r : r - 8u;
}
DEVICE void tile_a(const TileRows& rows, u32 step, u32 (&a)[Tile::A]) {
    UNROLL for (int r = 0; r < Tile::A; r++) {
#if STRATA_CUDA
        a[r] = rows.w[r & 1][step * Tile::B + (r >> 1)];
#else
        a[r] = rows.w[0][step * Tile::B + r];
#endif
    }
}
DEVICE void load_words(const u32* from, u32 (&to)[TILE_WORDS]) {
    UNROLL for (u32 i = 0; i < TILE_WORDS; i += 4) {
        U4 v = *(const U4*)(from + i);
        to[i] = v.x;
        to[i + 1] = v.y;
        to[i + 2] = v.z;
        to[i + 3] = v.w;
    }
}

// Key codes of the tile of Tile::N cells whose first is `cell`, for this lane's column.
DEVICE void tile_keys(const u8* RESTRICT codes, const i32* rows, u32 cell, u32 (&k)[SCALES][TILE_WORDS]) {
    i32 row = rows[cell + Tile::b_column(0)];
    const u8* at = codes + (u64)(u32)(row < 0 ? 0 : row) * HEAD_DIM + 4u * TILE_WORDS * tile_part();
    UNROLL for (u32 g = 0; g < SCALES; g++) load_words((const u32*)(at + 64u * g), k[g]);
}
// Scores of a tile: f32[heads][64] at score_at. `key_scales` are halves [64][4].
DEVICE void tile_scores(const u32 (&k)[SCALES][TILE_WORDS], u32 cell, const u32* query, const f32* query_scale, const u16* key_scales, f32* scores) {
    f32 sum[Tile::C];
    UNROLL for (u32 g = 0; g < SCALES; g++) {
        i32 c[3][Tile::C] = {};
        UNROLL for (u32 d = 0; d < 3; d++) {
            TileRows rows;
            UNROLL for (u32 i = 0; i < TileRows::n; i++) {
                u32 h = tile_row(i), first = 16u * g + TILE_WORDS * tile_part();
                UNROLL for (u32 w = 0; w < TILE_WORDS; w += 4) {
                    U4 v = *(const U4*)&query[query_word(d, h, first + w)];
                    rows.w[i][w] = v.x;
                    rows.w[i][w + 1] = v.y;
                    rows.w[i][w + 2] = v.z;
                    rows.w[i][w + 3] = v.w;
                }
            }
            UNROLL for (u32 s = 0; s < TILE_STEPS; s++) {
                u32 a[Tile::A], b[Tile::B];
                tile_a(rows, s, a);
                UNROLL for (int r = 0; r < Tile::B; r++) b[r] = k[g][s * Tile::B + r];
                Tile::multiply(c[d], a, b);
            }
        }
        UNROLL for (int i = 0; i < Tile::C; i++) {
            u32 h = Tile::c_row(i), at = cell + Tile::c_column(i);
            f32 qs = query_scale[h < GROUP_MAX ? h : 0u];
            f32 term = digit_join(c[0][i], c[1][i], c[2][i]) * (qs * float_of_half(key_scales[at * SCALES + g]));
            sum[i] = g == 0 ? term : sum[i] + term;
        }
    }
    UNROLL for (int i = 0; i < Tile::C; i++) {
        u32 h = Tile::c_row(i);
        if (h < GROUP_MAX) scores[score_at(h, cell + Tile::c_column(i))] = sum[i] * 0.0625f;
    }
}

// Value codes of TILES tiles of Tile::N dimensions from `dim` on (within one scale group), every cell of the chunk. A
// lane's column is TILES neighbouring dimensions, one a tile.
template <u32 TILES> DEVICE void tile_values(const u8* RESTRICT codes, const i32* rows, u32 dim, u32 (&v)[TILE_WORDS][4][TILES / 4]) {
    static_assert(TILES == 4 || TILES == 8, "whole words");
    u32 first = TILE_WORDS * tile_part();
    UNROLL for (u32 j = 0; j < TILE_WORDS; j++) UNROLL for (u32 k = 0; k < 4; k++) {
        i32 row = rows[first + j + 16u * k];
        const u8* at = codes + (u64)(u32)(row < 0 ? 0 : row) * HEAD_DIM + dim + TILES * Tile::b_column(0);
        if constexpr (TILES == 4) {
            v[j][k][0] = *(const u32*)at;
        } else {
            U2 two = *(const U2*)at;
            v[j][k][0] = two.x;
            v[j][k][1] = two.y;
        }
    }
}
// Their weighted sums: acc[head][256]. `weights` and `weight_scale` as weight_digits leaves them.
template <u32 TILES> DEVICE void tile_weighted(u32 (&v)[TILE_WORDS][4][TILES / 4], u32 dim, const u32* weights, const f32* weight_scale, f32 (&out)[TILES][Tile::C]) {
    u32 g = dim >> 6;
    UNROLL for (u32 j = 0; j < TILE_WORDS; j++) UNROLL for (u32 x = 0; x < TILES / 4; x++) transpose4(v[j][0][x], v[j][1][x], v[j][2][x], v[j][3][x]);
    TileRows rows[3];
    UNROLL for (u32 d = 0; d < 3; d++) UNROLL for (u32 i = 0; i < TileRows::n; i++)
        load_words(&weights[weight_word(g, d, tile_row(i), TILE_WORDS * tile_part())], rows[d].w[i]);
    f32 scale[Tile::C];
    UNROLL for (int i = 0; i < Tile::C; i++) {
        u32 h = Tile::c_row(i);
        scale[i] = weight_scale[g * GROUP_MAX + (h < GROUP_MAX ? h : 0u)];
    }
    UNROLL for (u32 t = 0; t < TILES; t++) {
        i32 c[3][Tile::C] = {};
        UNROLL for (u32 d = 0; d < 3; d++) UNROLL for (u32 s = 0; s < TILE_STEPS; s++) {
            u32 a[Tile::A], b[Tile::B];
            tile_a(rows[d], s, a);
            UNROLL for (int r = 0; r < Tile::B; r++) b[r] = v[s * Tile::B + r][t & 3u][t >> 2];
            Tile::multiply(c[d], a, b);
        }
        UNROLL for (int i = 0; i < Tile::C; i++) out[t][i] = digit_join(c[0][i], c[1][i], c[2][i]) * scale[i];
    }
}
// The first dimension of the lane's column of C.
template <u32 TILES> DEVICE u32 tile_dim(u32 dim, int i) { return dim + TILES * Tile::c_column(i); }
#endif
