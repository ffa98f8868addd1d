// The cells of a query, chunk after chunk, as physical rows: lane i of a wave holds cells i and i + 32 of a chunk.
#pragma once
#include "common/math.cuh"

#define CHUNK_CELLS 64
#define HEAD_DIM 256

struct alignas(8) F2 { f32 x, y; };
struct Rows2 { i32 a, b; };  // physical rows, -1 where there is no cell or its page is not resident

// What every prompt kernel takes. Query i has its step record at 4 i of `steps` (the width is its last word), its cells at
// i * cap of `ids` and its page table at i * table_stride of `table`. The grid is queries times KV heads.
template <class K, class V> struct PromptArgs {
    const f32* q;
    const i32* ids;
    const i32* steps;
    const i32* table;
    const K* k;
    const u16* k_scale;
    const V* v;
    const u16* v_scale;
    f32* out;
    i32 cap, group, table_stride;
};
#define PROMPT_PARAMETERS(K, V)                                                                                                       \
    const f32 *RESTRICT q, const i32 *RESTRICT ids, const i32 *RESTRICT steps, const i32 *RESTRICT table, const K *RESTRICT k,        \
        const u16 *RESTRICT k_scale, const V *RESTRICT v, const u16 *RESTRICT v_scale, f32 *RESTRICT out, i32 cap, i32 group, i32 table_stride
#define PROMPT_ARGUMENTS(K, V) PromptArgs<K, V>{q, ids, steps, table, k, k_scale, v, v_scale, out, cap, group, table_stride}

// What a workgroup does: the first of its query heads among all, cells of the query, chunks of them.
struct PromptQuery {
    u64 first_head;
    i32 width, chunks;
};
template <class Args> DEVICE PromptQuery prompt_query(const Args& g) {
    const i32 width = smaller(g.steps[4 * (u64)block_x() + 3], g.cap);
    return PromptQuery{((u64)block_x() * grid_y() + block_y()) * (u32)g.group, width, (width + CHUNK_CELLS - 1) / CHUNK_CELLS};
}

// Follows a list of ids ahead of the chunks, so that neither ids nor pages are waited for: `rows` gives the rows of the
// next chunk and asks for the ids of the one after, `look_up`, called some time later, for their pages.
struct CellFeed {
    const i32* ids;
    const i32* table;
    i32 width, kv_heads, kv_head, chunk;
    Rows2 id, page;

    __device__ inline void ask() {
        const i32 at = chunk * CHUNK_CELLS + (i32)(hidden(thread_x()) & 31u);
        id = Rows2{at < width ? ids[at] : -1, at + 32 < width ? ids[at + 32] : -1};
        chunk++;
    }
    __device__ inline void look_up() { page = Rows2{id.a >= 0 ? table[id.a >> 2] : -1, id.b >= 0 ? table[id.b >> 2] : -1}; }
    template <class Args> __device__ inline void start(const Args& g, const PromptQuery& query) {
        ids = g.ids + (u64)block_x() * (u32)g.cap;
        table = g.table + (u64)block_x() * (u32)g.table_stride;
        width = query.width;
        kv_heads = (i32)grid_y();
        kv_head = (i32)block_y();
        chunk = 0;
        ask();
        look_up();
    }
    __device__ inline i32 row(i32 cell, i32 of_page) const { return of_page < 0 ? -1 : (of_page * kv_heads + kv_head) * 4 + (cell & 3); }
    __device__ inline Rows2 rows() {
        Rows2 r = {row(id.a, page.a), row(id.b, page.b)};
        ask();
        return r;
    }
};

// The largest or the sum of four values over the wave by one tree of 16, 8, 4, 2, 1: lane l ends with that of value l >> 3.
template <class Op> DEVICE f32 wave_tree4(f32 v0, f32 v1, f32 v2, f32 v3, Op op) {
    bool upper = lane() & 16u, odd = lane() & 8u;
    f32 s0 = lane_xor<16>(upper ? v0 : v2), s1 = lane_xor<16>(upper ? v1 : v3);
    f32 k0 = op(upper ? v2 : v0, s0), k1 = op(upper ? v3 : v1, s1);
    f32 s = lane_xor<8>(odd ? k0 : k1), k = op(odd ? k1 : k0, s);
    k = op(k, lane_xor<4>(k));
    k = op(k, lane_xor<2>(k));
    return op(k, lane_xor<1>(k));
}
// exp_ of x <= 0 (or NaN), the same bits in fewer steps; of other numbers anything.
DEVICE f32 exp_falling(f32 x) {
    const f32 magic = 12582912.0f;
    f32 shifted = fma_(x, 1.44269504088896340736f, magic);
    f32 n = shifted - magic;
    f32 r = fma_(n, 2.1219444e-4f, fma_(n, -0.693359375f, x));
    f32 p = fma_(1.98756915e-4f, r, 1.39819995e-3f);
    p = fma_(p, r, 8.3334519e-3f);
    p = fma_(p, r, 4.1665796e-2f);
    p = fma_(p, r, 1.66666655e-1f);
    p = fma_(p, r, 5.0000001e-1f);
    f32 e = fma_(p * r, r, r) + 1.0f;
    // 2^k: k is in the low bits of `shifted`
    f32 y = e * float_of_bits((bits_of(shifted) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : y;
}
struct Sum { __device__ inline f32 operator()(f32 a, f32 b) const { return a + b; } };
struct Largest { __device__ inline f32 operator()(f32 a, f32 b) const { return max_(a, b); } };

// What a wave knows of heads G / 4 * w + l / 8: largest score and sum of weights so far.
struct Softmax {
    f32 top, total;
    bool started;
};
// Softmax of heads G / 4 * w.. over a chunk, of which lane l has cells l and l + 32: `score(head, cell)` gives scores,
// `weight(head, cell, p)` takes weights; the factors of the merge go to `merge`.
template <int G, class Score, class Weight>
DEVICE void softmax(u32 l, u32 w, bool valid_a, bool valid_b, bool live, Softmax& state, f32 (*merge)[2], Score score, Weight weight) {
    constexpr int each = G / 4;
    f32 a[each], b[each], most[4] = {};
    UNROLL for (int i = 0; i < each; i++) {
        a[i] = score(each * w + i, l);
        b[i] = score(each * w + i, l + 32u);
        most[i] = max_(valid_a ? a[i] : -3.402823466e+38f, valid_b ? b[i] : -3.402823466e+38f);
    }
    const f32 m = wave_tree4(most[0], most[1], most[2], most[3], Largest{});
    f32 pair[4] = {};
    UNROLL for (int i = 0; i < each; i++) {
        const f32 base = lane_get(m, 8u * i);
        a[i] = valid_a ? exp_falling(a[i] - base) : 0.0f;
        b[i] = valid_b ? exp_falling(b[i] - base) : 0.0f;
        weight(each * w + i, l, a[i]);
        weight(each * w + i, l + 32u, b[i]);
        pair[i] = a[i] + b[i];
    }
    const f32 sum = wave_tree4(pair[0], pair[1], pair[2], pair[3], Sum{});
    // One of the two factors is exp(0) = 1. A first chunk keeps nothing, a masked one (whose values are +0) takes
    // nothing: fma(A, 1, 0 * -0) = A.
    const bool higher = !state.started || m > state.top;
    const f32 e = exp_falling(higher ? state.top - m : m - state.top);
    const f32 keep = !live ? 1.0f : !state.started ? 0.0f : higher ? e : 1.0f, take = !live ? -0.0f : higher ? 1.0f : e;
#if defined(STRATA_BROKEN_PROMPT)  // what the suite must see: the other product rounded
    state.total = !live ? state.total : !state.started ? sum : fma_(sum, take, state.total * keep);
#else
    state.total = !live ? state.total : !state.started ? sum : fma_(state.total, keep, sum * take);
#endif
    state.top = live && higher ? m : state.top;
    state.started = state.started || live;
    if ((l & 7u) == 0u && l >> 3 < (u32)each) {
        merge[each * w + (l >> 3)][0] = keep;
        merge[each * w + (l >> 3)][1] = take;
    }
}
// The sums of weights, for all waves: `totals[head][0]`.
template <int G> DEVICE void share_totals(u32 l, u32 w, const Softmax& state, f32 (*totals)[2]) {
    barrier_lds();
    if ((l & 7u) == 0u && l >> 3 < (u32)G / 4u) totals[G / 4 * w + (l >> 3)][0] = state.total;
    barrier_lds();
}
