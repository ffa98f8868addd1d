// Decode attention over int8 keys (int8, k8v4) by integer digits: chunk kernels. Variants differ in the unit that sums
// the digit products, which are exact: matrix instructions on 8 or 4 waves, or dot4.
#include "attention/decode.cuh"
#include "attention/digit_tile.cuh"
#include "attention/float_tail.cuh"

// Queries as digit words and scales; `x` are the rounds of load_query.
template <u32 WAVES, u32 ROUNDS> DEVICE void stage_query(const f32 (&x)[ROUNDS][8], u32* words, f32* scale) {
    UNROLL for (u32 r = 0; r < ROUNDS; r++) {
        u32 h = wave() + WAVES * r;
        f32 s = query_digits(x[r], words, h, h < GROUP_MAX);
        if (h < GROUP_MAX && lane() == 0) scale[h] = s;
    }
}
DEVICE U2 row_scales(const u16* RESTRICT scales, i32 row) {
    U2 s = *(const U2*)(scales + (u64)(u32)(row < 0 ? 0 : row) * SCALES);
    return row < 0 ? U2{0u, 0u} : s;
}

#if STRATA_MATRIX
template <u32 WAVES> DEVICE void chunk_int8_tiles(CHUNK_ARGS) {
    constexpr u32 THREADS = 32 * WAVES, ROUNDS = (GROUP_MAX + WAVES - 1) / WAVES;
    constexpr u32 KEY_TILES = CHUNK / Tile::N / WAVES, TILES = HEAD_DIM / WAVES / Tile::N;
    SHARED(u32, words, [DIGIT_WORDS]);
    SHARED(f32, scores, [GROUP_MAX * CHUNK]);
    SHARED(U2, key_scales, [CHUNK]);
    SHARED(U2, value_scales, [CHUNK]);
    SHARED(i32, rows, [CHUNK]);
    SHARED(f32, query_scale, [GROUP_MAX]);
    SHARED(f32, weight_scale, [SCALES * GROUP_MAX]);
    u32 t = thread_x(), w = wave(), cells = chunk_cells(steps, cap);
    if (!cells) return dead_chunk(m, l, group);
    f32 x[ROUNDS][8];
    UNROLL for (u32 r = 0; r < ROUNDS; r++) load_query<WAVES>(q, group, r, x[r]);
    chunk_rows(ids, table, cap, table_stride, cells, rows);
    barrier_lds();

    // all of this workgroup's reads are under way before the first product
    u32 key[KEY_TILES][SCALES][TILE_WORDS], value[TILE_WORDS][4][TILES / 4], dim = w * TILES * Tile::N;
    UNROLL for (u32 i = 0; i < KEY_TILES; i++) tile_keys(k, rows, (w * KEY_TILES + i) * Tile::N, key[i]);
#if !STRATA_WMMA
    tile_values<TILES>(v, rows, dim, value);
#endif
    U2 sk = row_scales(ks, rows[t & 63u]), sv = row_scales(vs, rows[t & 63u]);
    stage_query<WAVES>(x, words, query_scale);
    if (t < CHUNK) {
        key_scales[t] = sk;
        value_scales[t] = sv;
    }
    barrier_lds();
    UNROLL for (u32 i = 0; i < KEY_TILES; i++)
        tile_scores(key[i], (w * KEY_TILES + i) * Tile::N, words, query_scale, (const u16*)key_scales, scores);
    barrier_lds();
#if STRATA_WMMA
    // not earlier, so that keys and values do not hold registers together
    tile_values<TILES>(v, rows, dim, value);
#endif
    UNROLL for (u32 r = 0; r < 16 / (THREADS / 16); r++) {
        u32 h = t / 16 + r * (THREADS / 16), j = t & 15u;
        f32 p[4];
        Softmax s = chunk_softmax(scores, rows, smaller(h, GROUP_MAX - 1), j, p);
        store_softmax(m, l, group, h, j, s);
        weight_digits(p, value_scales, words, weight_scale, h, j, h < GROUP_MAX);
    }
    barrier_lds();
    f32 out[TILES][Tile::C];
    tile_weighted<TILES>(value, dim, words, weight_scale, out);
    f32* to = acc + chunk_slot(group) * HEAD_DIM;
    UNROLL for (int i = 0; i < Tile::C; i++) {
        u32 h = Tile::c_row(i);
        if ((i32)h < group) {
            UNROLL for (u32 j = 0; j < TILES; j += 4)
                *(F4*)(to + h * HEAD_DIM + tile_dim<TILES>(dim, i) + j) = F4{out[j][i], out[j + 1][i], out[j + 2][i], out[j + 3][i]};
        }
    }
}
KERNEL(128) attn_chunk_int8_tiles4(CHUNK_ARGS) { chunk_int8_tiles<4>(CHUNK_PASS); }
#if STRATA_CUDA
KERNEL(256) attn_chunk_int8_tiles8(CHUNK_ARGS) { chunk_int8_tiles<8>(CHUNK_PASS); }
#endif
#endif

// Scores by dot4: a thread has one cell and every fourth head from its set on. `key` is the cell's row.
DEVICE void dot_scores(const u32 (&key)[64], u32 cell, i32 group, const u32* words, const f32* query_scale, const U2* key_scales, f32* scores) {
    U2 pairs = key_scales[cell];
    NO_UNROLL for (u32 h = thread_x() >> 6; (i32)h < group; h += 4) {
        f32 sum = 0.0f;
        UNROLL for (u32 g = 0; g < SCALES; g++) {
            i32 c[3] = {0, 0, 0};
            UNROLL for (u32 d = 0; d < 3; d++) UNROLL for (u32 i = 0; i < 16; i += 4) {
                U4 n = *(const U4*)&words[query_word(d, h, 16u * g + i)];
                c[d] = dot4(n.x, key[16 * g + i], c[d]);
                c[d] = dot4(n.y, key[16 * g + i + 1], c[d]);
                c[d] = dot4(n.z, key[16 * g + i + 2], c[d]);
                c[d] = dot4(n.w, key[16 * g + i + 3], c[d]);
            }
            u32 pair = g < 2 ? pairs.x : pairs.y;
            f32 term = digit_join(c[0], c[1], c[2]) * (query_scale[h] * float_of_half((u16)(g & 1 ? pair >> 16 : pair)));
            sum = g == 0 ? term : sum + term;
        }
        scores[score_at(h, cell)] = sum * 0.0625f;
    }
}
DEVICE void load_row(const u8* RESTRICT codes, i32 row, u32 (&key)[64]) {
    const U4* at = (const U4*)(codes + (u64)(u32)(row < 0 ? 0 : row) * HEAD_DIM);
    UNROLL for (u32 i = 0; i < 16; i++) {
        U4 n = at[i];
        key[4 * i] = n.x;
        key[4 * i + 1] = n.y;
        key[4 * i + 2] = n.z;
        key[4 * i + 3] = n.w;
    }
}
KERNEL(256) attn_chunk_int8_dot(CHUNK_ARGS) {
    SHARED(u32, words, [DIGIT_WORDS]);
    SHARED(f32, scores, [GROUP_MAX * CHUNK]);
    SHARED(U2, key_scales, [CHUNK]);
    SHARED(U2, value_scales, [CHUNK]);
    SHARED(i32, rows, [CHUNK]);
    SHARED(f32, query_scale, [GROUP_MAX]);
    SHARED(f32, weight_scale, [SCALES * GROUP_MAX]);
    u32 t = thread_x(), cells = chunk_cells(steps, cap);
    if (!cells) return dead_chunk(m, l, group);
    f32 x[2][8];
    load_query<8>(q, group, 0, x[0]);
    load_query<8>(q, group, 1, x[1]);
    chunk_rows(ids, table, cap, table_stride, cells, rows);
    barrier_lds();
    u32 key[64];
    load_row(k, rows[t & 63u], key);
    U2 sk = row_scales(ks, rows[t & 63u]), sv = row_scales(vs, rows[t & 63u]);
    stage_query<8>(x, words, query_scale);
    if (t < CHUNK) {
        key_scales[t] = sk;
        value_scales[t] = sv;
    }
    barrier_lds();
    dot_scores(key, t & 63u, group, words, query_scale, key_scales, scores);
    // four dimensions of every cell, by cells: word j of a dimension holds cells j, j + 16, j + 32, j + 48
    u32 value[16][4], dim = 4u * (t & 63u), g = dim >> 6;
    UNROLL for (u32 j = 0; j < 16; j++) UNROLL for (u32 c = 0; c < 4; c++) {
        i32 row = rows[j + 16u * c];
        value[j][c] = *(const u32*)(v + (u64)(u32)(row < 0 ? 0 : row) * HEAD_DIM + dim);
    }
    barrier_lds();
    u32 h = t >> 4, j = t & 15u;
    f32 p[4];
    Softmax s = chunk_softmax(scores, rows, smaller(h, GROUP_MAX - 1), j, p);
    store_softmax(m, l, group, h, j, s);
    weight_digits(p, value_scales, words, weight_scale, h, j, h < GROUP_MAX);
    barrier_lds();
    UNROLL for (u32 i = 0; i < 16; i++) transpose4(value[i][0], value[i][1], value[i][2], value[i][3]);
    f32* to = acc + chunk_slot(group) * HEAD_DIM + dim;
    NO_UNROLL for (u32 n = t >> 6; (i32)n < group; n += 4) {
        i32 c[3][4] = {};
        UNROLL for (u32 d = 0; d < 3; d++) UNROLL for (u32 i = 0; i < 16; i += 4) {
            U4 e = *(const U4*)&words[weight_word(g, d, n, i)];
            UNROLL for (u32 x = 0; x < 4; x++) {
                c[d][x] = dot4(e.x, value[i][x], c[d][x]);
                c[d][x] = dot4(e.y, value[i + 1][x], c[d][x]);
                c[d][x] = dot4(e.z, value[i + 2][x], c[d][x]);
                c[d][x] = dot4(e.w, value[i + 3][x], c[d][x]);
            }
        }
        f32 scale = weight_scale[g * GROUP_MAX + n];
        *(F4*)(to + n * HEAD_DIM) = F4{digit_join(c[0][0], c[1][0], c[2][0]) * scale, digit_join(c[0][1], c[1][1], c[2][1]) * scale,
                                       digit_join(c[0][2], c[1][2], c[2][2]) * scale, digit_join(c[0][3], c[1][3], c[2][3]) * scale};
    }
}

// k8v4: keys by digits, values in floats.
template <bool TILES, bool PLAIN> DEVICE void chunk_k8v4(CHUNK_ARGS) {
    SHARED(u32, words, [DIGIT_WORDS]);  // queries, then weights
    SHARED(f32, scores, [GROUP_MAX * CHUNK]);
    SHARED(U2, key_scales, [CHUNK]);
    SHARED(i32, rows, [CHUNK]);
    SHARED(f32, query_scale, [GROUP_MAX]);
    u32 t = thread_x(), cells = chunk_cells(steps, cap);
    if (!cells) return dead_chunk(m, l, group);
    f32 x[2][8];
    load_query<8>(q, group, 0, x[0]);
    load_query<8>(q, group, 1, x[1]);
    chunk_rows(ids, table, cap, table_stride, cells, rows);
    barrier_lds();
    U2 sk = row_scales(ks, rows[t & 63u]);
#if STRATA_CUDA
    u32 tile[SCALES][TILE_WORDS];
    if constexpr (TILES) tile_keys(k, rows, wave() * Tile::N, tile);
#endif
    u32 key[64];
    if constexpr (!TILES) load_row(k, rows[t & 63u], key);
    stage_query<8>(x, words, query_scale);
    if (t < CHUNK) key_scales[t] = sk;
    barrier_lds();
#if STRATA_CUDA
    if constexpr (TILES) tile_scores(tile, wave() * Tile::N, words, query_scale, (const u16*)key_scales, scores);
#endif
    if constexpr (!TILES) dot_scores(key, t & 63u, group, words, query_scale, key_scales, scores);
    barrier_lds();
    if constexpr (PLAIN) plain_tail<Q4Rows>(v, vs, rows, cells, scores, (f32*)words, m, l, acc, group);
    else float_tail<Q4Rows>(v, vs, rows, cells, scores, (f32*)words, m, l, acc, group);
}
KERNEL(256) attn_chunk_k8v4_dot(CHUNK_ARGS) { chunk_k8v4<false, false>(CHUNK_PASS); }
KERNEL_OCC(256, 1) attn_chunk_k8v4_plain(CHUNK_ARGS) { chunk_k8v4<false, true>(CHUNK_PASS); }
#if STRATA_CUDA
KERNEL(256) attn_chunk_k8v4_tiles8(CHUNK_ARGS) { chunk_k8v4<true, false>(CHUNK_PASS); }
#endif
