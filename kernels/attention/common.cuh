// Attention over selected cells (NUMERICS.md section 3): what decode and prompt kernels share. All follow
// strata_ops::qsa to the bit.
#pragma once
#include "common/digits.cuh"
#include "common/math.cuh"
#include "side/side.cuh"

// Suites compile a kernel with a macro STRATA_BROKEN_.. to see that they notice.
constexpr u32 HEAD_DIM = 256;  // values of a head
constexpr u32 CHUNK = 64;      // selected cells of a chunk
constexpr u32 GROUP_MAX = 12;  // query heads of a KV head
constexpr u32 SCALES = 4;      // scale groups of an int8 row, 64 values each
constexpr u32 Q4_ROW = 144;    // bytes of a q4_0 row: 8 blocks of a half and 16 bytes
constexpr f32 LOWEST = -3.402823466e+38f;  // score of a masked cell

// Physical row of a cell's KV head, or -1 where its page is not resident.
DEVICE i32 physical_row(const i32* RESTRICT table, i32 cell, u32 kv_head, u32 kv_heads) {
    i32 page = table[cell >> 2];
    return page < 0 ? -1 : (i32)(((u32)page * kv_heads + kv_head) * 4u + ((u32)cell & 3u));
}

// Place of a score in f32[heads][64]. Odd heads are turned by 16 cells, so that two heads read at once hit other banks.
DEVICE u32 score_at(u32 head, u32 cell) { return head * CHUNK + (cell ^ ((head & 1u) << 4)); }

// Sixteen lanes hold a head's chunk: lane j has cells j, j + 16, j + 32, j + 48. Sums and maxima over them:
template <class T> DEVICE T max16(T v) {
    v = larger(v, lane_xor<8>(v));
    v = larger(v, lane_xor<4>(v));
    v = larger(v, lane_xor<2>(v));
    return larger(v, lane_xor<1>(v));
}
DEVICE f32 sum16(f32 v) {
    v = v + lane_xor<8>(v);
    v = v + lane_xor<4>(v);
    v = v + lane_xor<2>(v);
    return v + lane_xor<1>(v);
}

struct Softmax { f32 m, l; };  // largest score of a chunk, sum of its weights

// Weights exp(score - largest) of four cells a lane; masked cells, whose rows are below 0, weigh nothing. The sum is
// the 32-lane tree over p[L] + p[L + 32]: its level 16 is within a lane here.
DEVICE Softmax chunk_softmax(const f32* scores, const i32* rows, u32 head, u32 j, f32 (&p)[4]) {
    f32 s[4], m = LOWEST;
    bool live[4];
    UNROLL for (int k = 0; k < 4; k++) {
        live[k] = rows[j + 16 * k] >= 0;
        s[k] = live[k] ? scores[score_at(head, j + 16 * k)] : LOWEST;
        m = larger(s[k], m);
    }
    m = max16(m);
    UNROLL for (int k = 0; k < 4; k++) p[k] = live[k] ? exp_(s[k] - m) : 0.0f;
#if defined(STRATA_BROKEN_TREE)
    return Softmax{m, sum16((p[0] + p[1]) + (p[2] + p[3]))};  // for the suites: another tree
#else
    return Softmax{m, sum16((p[0] + p[2]) + (p[1] + p[3]))};
#endif
}

// Three digit planes of up to four values, a byte each.
struct DigitWords { u32 d[3]; };
template <int n> DEVICE DigitWords digit_words(const f32 (&x)[n], f32 factor) {
    static_assert(n <= 4, "one word a plane");
    DigitWords w = {{0u, 0u, 0u}};
    UNROLL for (int i = 0; i < n; i++) {
        Digits d = digits_of(digit_integer(x[i], factor));
        w.d[0] |= ((u32)d.d0 & 255u) << 8 * i;
        w.d[1] |= ((u32)d.d1 & 255u) << 8 * i;
        w.d[2] |= ((u32)d.d2 & 255u) << 8 * i;
    }
    return w;
}
template <int n> DEVICE f32 amax_of(const f32 (&x)[n]) {
    f32 m = 0.0f;
    UNROLL for (int i = 0; i < n; i++) m = larger(magnitude(x[i]), m);
    return m;
}

// Digit rows of queries in shared memory, [plane][head][256 bytes]. Units of 16 bytes of odd heads are turned by 4, so
// that neighbouring heads' fragments lie in other banks. Returns the word's place.
DEVICE u32 query_word(u32 plane, u32 head, u32 word) { return (plane * GROUP_MAX + head) * 64u + (word ^ ((head & 1u) << 4)); }
// Digit rows of weights x scale, [scale group][plane][head][16 words]; word j holds cells j, j + 16, j + 32, j + 48.
DEVICE u32 weight_word(u32 group, u32 plane, u32 head, u32 word) { return ((group * 3u + plane) * GROUP_MAX + head) * 16u + word; }
constexpr u32 DIGIT_WORDS = 3 * GROUP_MAX * 64;  // of either kind

// One head's query into digit words; lane L has values 8 L ..= 8 L + 7. Returns the scale.
DEVICE f32 query_digits(const f32 (&x)[8], u32* words, u32 head, bool store) {
    DigitScale s = digit_scale(wave_max(amax_of(x)));
    f32 low[4] = {x[0], x[1], x[2], x[3]}, high[4] = {x[4], x[5], x[6], x[7]};
    DigitWords a = digit_words(low, s.factor), b = digit_words(high, s.factor);
    if (store) {
        UNROLL for (u32 d = 0; d < 3; d++) *(U2*)&words[query_word(d, head, 2u * lane())] = U2{a.d[d], b.d[d]};
    }
    return s.scale;
}

// Weights x value scales of four cells of one head (p as chunk_softmax gives it): digit words and scales of the four
// scale groups. `scales` are halves [64][4] of the chunk's value rows, 0 for masked cells; `out_scale` is [4][12].
DEVICE void weight_digits(const f32 (&p)[4], const U2* scales, u32* words, f32* out_scale, u32 head, u32 j, bool store) {
    U2 sv[4];
    UNROLL for (int k = 0; k < 4; k++) sv[k] = scales[j + 16 * k];
    UNROLL for (u32 g = 0; g < SCALES; g++) {
        f32 x[4];
        UNROLL for (int k = 0; k < 4; k++) {
            u32 pair = g < 2 ? sv[k].x : sv[k].y;
            x[k] = p[k] * float_of_half((u16)(g & 1 ? pair >> 16 : pair));
        }
        DigitScale s = digit_scale(max16(amax_of(x)));
        DigitWords w = digit_words(x, s.factor);
        if (store) {
            UNROLL for (u32 d = 0; d < 3; d++) words[weight_word(g, d, head, j)] = w.d[d];
            if (j == 0) out_scale[g * GROUP_MAX + head] = s.scale;
        }
    }
}

// Transposes four words of four bytes held by one lane: word i ends with byte i of each.
DEVICE void transpose4(u32& a, u32& b, u32& c, u32& d) {
    u32 ab = byte_permute<0x5140>(a, b), cd = byte_permute<0x5140>(c, d);
    u32 ef = byte_permute<0x7362>(a, b), gh = byte_permute<0x7362>(c, d);
    a = byte_permute<0x5410>(ab, cd);
    b = byte_permute<0x7632>(ab, cd);
    c = byte_permute<0x5410>(ef, gh);
    d = byte_permute<0x7632>(ef, gh);
}

template <int mask> DEVICE void butterfly8(f32 (&x)[8]) {
    UNROLL for (int i = 0; i < 8; i++) {
        f32 other = lane_xor<mask>(x[i]);
        x[i] = lane() & mask ? other - x[i] : x[i] + other;
    }
}
// Walsh-Hadamard rotation of a 256-wide row; lane L has values 8 L ..= 8 L + 7.
DEVICE void rotate_row(f32 (&x)[8]) {
    UNROLL for (int i = 0; i < 8; i++) x[i] = x[i] * 0.0625f;
    UNROLL for (int h = 1; h < 8; h *= 2) UNROLL for (int i = 0; i < 8; i++) {
        if (i & h) continue;
        f32 a = x[i], b = x[i + h];
        x[i] = a + b;
        x[i + h] = a - b;
    }
    butterfly8<1>(x);
    butterfly8<2>(x);
    butterfly8<4>(x);
    butterfly8<8>(x);
    butterfly8<16>(x);
}
