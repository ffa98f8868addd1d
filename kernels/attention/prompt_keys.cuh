// Scores of a chunk of int8 keys by integer digits: each of four waves takes one scale group of 64 dimensions.
#pragma once
#include "attention/prompt_cells.cuh"
#include "attention/prompt_columns.cuh"
#include "common/digits.cuh"

#if STRATA_MATRIX
// The digits of four numbers, each digit's four bytes in a word.
DEVICE void digit_words(f32 a, f32 b, f32 c, f32 d, f32 factor, u32 (&out)[3]) {
    f32 x[4] = {a, b, c, d};
    u32 n[4];
    UNROLL for (int i = 0; i < 4; i++) {
#if STRATA_CUDA
        i32 v = int_of_rounded(x[i] * factor);  // NaN gives 0
        // bytes are the digits plus 128
        n[i] = (u32)larger(smaller(v + 0x808080, 0xffffff), 0x010101);
#else
        n[i] = (u32)(digit_integer(x[i], factor) + 0x808080);
#endif
    }
    u32 ab = byte_permute<0x5140>(n[0], n[1]), cd = byte_permute<0x5140>(n[2], n[3]);
    u32 ab2 = byte_permute<0x6262>(n[0], n[1]), cd2 = byte_permute<0x6262>(n[2], n[3]);
    out[0] = byte_permute<0x5410>(ab, cd) ^ 0x80808080u;
    out[1] = byte_permute<0x7632>(ab, cd) ^ 0x80808080u;
    out[2] = byte_permute<0x5410>(ab2, cd2) ^ 0x80808080u;
}
// A masked cell reads row 0; its score is dropped and its weight is 0.
DEVICE Rows2 readable(Rows2 r) { return Rows2{larger(r.a, 0), larger(r.b, 0)}; }
// Byte `part` of a row of codes; all rows lie below 2^32 bytes.
DEVICE const i8* row_at(const i8* codes, i32 row, u32 part) {
#if STRATA_CUDA
    return codes + part + (u64)(u32)row * HEAD_DIM;
#else
    return codes + ((u32)row * HEAD_DIM + part);
#endif
}
struct Half2 { u16 a, b; };
DEVICE u16 scale_of(const u16* scales, i32 row, u32 group) {
#if STRATA_CUDA
    return (scales + group)[(u64)(u32)row * 4u];
#else
    return scales[(u32)row * 4u + group];
#endif
}
DEVICE Half2 load_scales(const u16* scales, Rows2 rows, u32 group) {
    return Half2{scale_of(scales, rows.a, group), scale_of(scales, rows.b, group)};
}

#if STRATA_CUDA
// A chunk of rows in shared memory: the wave's 64 bytes of each of 64 cells. The four pieces of 16 bytes of a cell change
// places, piece i of key c to i ^ (c / 2) % 4, of value c to i ^ (c / 4) % 4, so that rows that a matrix load reads together
// meet no bank twice: eight neighbouring keys, or of sixteen values the first (or last) two of each four.
// Copies a chunk; `part` is the offset of the lane's piece. Lane l copies piece l % 4 of cells l / 4, l / 4 + 8, ...
template <bool values> DEVICE void copy_rows(u32 l, u8* to, const i8* from, u32 part, Rows2 rows) {
    const u32 first = 16u * l ^ (values ? l >> 4 : l >> 3 & 3u) * 16u;
    UNROLL for (u32 j = 0; j < 8; j++) {
        i32 row = lane_get(j < 4 ? rows.a : rows.b, (8u * j & 31u) + (l >> 2));
        async_copy16(to + (values && j & 1u ? first ^ 32u : first) + 512u * j, row_at(from, row, part));
    }
}
// The fragment of 16 keys and 32 bytes, half `k` of the group's: lane l names row l % 16 and half l / 16 of the bytes.
DEVICE void load_keys(u32 l, const u8* tile, int m, int k, u32 (&a)[4]) {
    const u32 at = (l & 15u) * 64u + ((l >> 4) ^ (l >> 1 & 3u)) * 16u;
    nv_ldmatrix4(a, tile + (at ^ 32u * k) + 1024u * m);
}
// The fragment of 16 dimensions and 32 cells: rows n and n + 8 are dimensions 2 n and 2 n + 1, pairs of which a
// transposing load gives. Matrix l / 8 has the first or last two cells of each four of sixteen.
DEVICE void load_values(u32 l, const u8* tile, int m, int k, u32 (&a)[4]) {
    const u32 four = l >> 1 & 3u, at = ((l >> 4) * 16u + four * 4u + (l >> 2 & 2u) + (l & 1u)) * 64u + four * 16u;
    u32 v[4];
    nv_ldmatrix4_transposed(v, tile + (at ^ 16u * m) + 2048u * k);
    UNROLL for (int r = 0; r < 4; r++)
        a[r] = r & 1 ? byte_permute<0x7531>(v[r & 2], v[(r & 2) + 1]) : byte_permute<0x6420>(v[r & 2], v[(r & 2) + 1]);
}
#endif

#if STRATA_HIP
// This lane's part of the wave's 64 bytes of a key.
template <int G> DEVICE void load_keys(const i8* from_part, u32 (&a)[DigitColumns<G>::steps][MatrixS8::A]) {
    constexpr int n = MatrixS8::A;
    const U4* from = (const U4*)from_part;
    UNROLL for (int i = 0; i < DigitColumns<G>::steps * n / 4; i++) {
        const U4 v = from[i];
        a[4 * i / n][4 * i % n] = v.x;
        a[4 * i / n][4 * i % n + 1] = v.y;
        a[(4 * i + 2) / n][(4 * i + 2) % n] = v.z;
        a[(4 * i + 2) / n][(4 * i + 2) % n + 1] = v.w;
    }
}
#endif

// The query's digits into `stage` ([digit][head][256]) and the scales of the heads.
template <int G> DEVICE void stage_query(const f32* q, i32 group, u8* stage, f32* scales) {
    for (u32 head = wave(); head < (u32)G; head += 4) {
        F4 a = {0.0f, 0.0f, 0.0f, 0.0f}, b = a;
        if ((i32)head < group) {
            const F4* from = (const F4*)(q + head * HEAD_DIM + 8u * lane());
            a = from[0];
            b = from[1];
        }
        f32 m = max_(max_(max_(magnitude(a.x), magnitude(a.y)), max_(magnitude(a.z), magnitude(a.w))),
                     max_(max_(magnitude(b.x), magnitude(b.y)), max_(magnitude(b.z), magnitude(b.w))));
        DigitScale s = digit_scale(wave_max(m));
        u32 x[3], y[3];
        digit_words(a.x, a.y, a.z, a.w, s.factor, x);
        digit_words(b.x, b.y, b.z, b.w, s.factor, y);
        UNROLL for (u32 d = 0; d < 3; d++) *(U2*)(stage + (d * G + head) * HEAD_DIM + 8u * lane()) = U2{x[d], y[d]};
        if (lane() == 0) scales[head] = s.scale;
    }
}

// The digits of this wave's dimensions out of what `stage_query` left.
template <int G>
DEVICE void query_digits(u32 l, u32 w, const u8* stage, u32 (&digits)[DigitColumns<G>::tiles][DigitColumns<G>::steps][MatrixS8::B]) {
    typedef DigitColumns<G> C;
    UNROLL for (int t = 0; t < C::tiles; t++) {
        const u32 head = C::head(l, t), digit = C::digit(l, t);
        const u8* from = stage + ((digit < 3u ? digit : 0u) * G + head) * HEAD_DIM + 64u * w;
        UNROLL for (int k = 0; k < C::steps; k++)
            UNROLL for (int r = 0; r < MatrixS8::B; r++) digits[t][k][r] = *(const u32*)(from + C::depth(l, k, r));
    }
}

// Scores of the wave's group for 64 cells, to `part` ([head], 68 apart, [cell]). `scales` are those of the keys' group.
// NVIDIA has the keys in `tile`; AMD reads them here, a tile ahead.
template <int G>
DEVICE void key_scores(u32 l, u32 w, const u8* tile, const i8* keys, Rows2 rows, const u32 (&q_digits)[DigitColumns<G>::tiles][DigitColumns<G>::steps][MatrixS8::B],
                       const f32* q_scales, const f32* scales, f32* part) {
    typedef DigitColumns<G> C;
    typedef MatrixS8 X;
    f32 q_scale[C::heads];
    UNROLL for (int i = 0; i < C::heads; i++) q_scale[i] = q_scales[C::sum_head(l, i)];
#if STRATA_CUDA
    UNROLL for (int m = 0; m < 4; m++) {
        u32 a[C::steps][X::A];
        UNROLL for (int k = 0; k < 2; k++) load_keys(l, tile, m, k, a[k]);
#else
    const u32 at = 64u * w + C::depth(l, 0, 0);
    u32 ahead[C::steps][X::A];
    load_keys<G>(row_at(keys, lane_get(rows.a, l & 15u), at), ahead);
    NO_UNROLL for (int m = 0; m < 4; m++) {
        u32 a[C::steps][X::A];
        UNROLL for (int k = 0; k < C::steps; k++) UNROLL for (int r = 0; r < X::A; r++) a[k][r] = ahead[k][r];
        // the last round loads the first rows again
        load_keys<G>(row_at(keys, lane_get(m == 1 || m == 2 ? rows.b : rows.a, (16u * (m + 1) + (l & 15u)) & 31u), at), ahead);
#endif
        f32 scale[C::rows];
        UNROLL for (int r = 0; r < C::rows; r++) scale[r] = scales[16u * m + C::row(l, r)];
        UNROLL for (int half = 0; half < C::parts; half++) {
            i32 dots[C::tiles][X::C] = {};
            UNROLL for (int k = 0; k < C::steps; k++)
                UNROLL for (int t = C::first_tile(half); t < C::end_tile(half); t++) X::multiply(dots[t], a[k], q_digits[t][k]);
            UNROLL for (int r = 0; r < C::rows; r++) UNROLL for (int i = C::first_head(half); i < C::end_head(half); i++) {
                const f32 t = digit_join(C::sum(dots, 0, r, i), C::sum(dots, 1, r, i), C::sum(dots, 2, r, i));
                part[C::sum_head(l, i) * 68u + 16u * m + C::row(l, r)] = t * (q_scale[i] * scale[r]);
            }
        }
    }
}
// A score out of what `key_scores` of the four groups left.
template <int G> DEVICE f32 whole_score(const f32 (*part)[G * 68], u32 head, u32 cell) {
    const u32 at = head * 68u + cell;
    return (((part[0][at] + part[1][at]) + part[2][at]) + part[3][at]) * 0.0625f;
}
#endif
