// The merge of chunks of NUMERICS.md section 3: in ascending order, chunks without a live cell skipped. One workgroup a
// query head (grid: heads, queries), one thread a dimension.
#include "attention/common.cuh"

// Chunks of a step, one a lane. Where registers allow, the next step's partials are read before a step is merged.
#if STRATA_CUDA
constexpr u32 STEP = 32;
constexpr bool TWO_STEPS = true;
#else
constexpr u32 STEP = 16;
constexpr bool TWO_STEPS = false;
#endif

// Rotates back the head whose value `x` thread d of 256 has for dimension d.
DEVICE f32 rotate_back(f32 x) {
    SHARED(f32, row, [HEAD_DIM]);
    x = x * 0.0625f;
    f32 o = lane_xor<1>(x);
    x = lane() & 1u ? o - x : x + o;
    o = lane_xor<2>(x);
    x = lane() & 2u ? o - x : x + o;
    o = lane_xor<4>(x);
    x = lane() & 4u ? o - x : x + o;
    o = lane_xor<8>(x);
    x = lane() & 8u ? o - x : x + o;
    o = lane_xor<16>(x);
    x = lane() & 16u ? o - x : x + o;
    row[thread_x()] = x;
    barrier_lds();
    // the levels 32, 64 and 128 are between waves: each thread builds the values that its own needs
    u32 w = wave();
    f32 y[4];
    UNROLL for (u32 i = 0; i < 4; i++) {
        f32 a = row[64u * i + lane()], b = row[64u * i + 32u + lane()];
        y[i] = w & 1u ? a - b : a + b;
    }
    f32 low = w & 2u ? y[0] - y[1] : y[0] + y[1], high = w & 2u ? y[2] - y[3] : y[2] + y[3];
    return w & 4u ? low - high : low + high;
}

// The partials of a step: this lane's chunk's m and l, this thread's dimension of every chunk.
struct Partials {
    f32 m, l, x[STEP];
};
DEVICE Partials load_partials(const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, u64 first, u32 group, u32 base, u32 n) {
    Partials p;
    UNROLL for (u32 i = 0; i < STEP; i++) p.x[i] = base + i < n ? acc[(first + (u64)(base + i) * group) * HEAD_DIM + thread_x()] : 0.0f;
    u32 c = base + (lane() & (STEP - 1u));
    p.m = c < n ? m[first + (u64)c * group] : LOWEST;
    p.l = c < n ? l[first + (u64)c * group] : 0.0f;
    return p;
}

// out = A / L, or +0 with no live chunk. Chunks past the query's selection are not read. Lane c makes the factors of
// chunk c of a step: the largest score so far by a scan, then a = exp(M - M'), b = exp(m - M').
template <bool ROTATED>
DEVICE void merge_chunks(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks,
                         i32 group) {
    u32 head = block_x(), query = block_y(), heads = grid_x(), g = (u32)group;
    u64 first = ((u64)query * heads + head / g * g) * (u32)chunks + head % g;  // [query][kv head][chunk][group]
    i32 width = steps[4u * query + 3u];
    u32 n = width <= 0 ? 0u : smaller((u32)chunks, ((u32)width + CHUNK - 1u) / CHUNK);
    f32 top = LOWEST, sum = 0.0f, a = 0.0f;
    bool any = false;
    Partials now = load_partials(m, l, acc, first, g, 0, n);
    NO_UNROLL for (u32 base = 0; base < n; base += STEP) {
        Partials next;
        if constexpr (TWO_STEPS) next = load_partials(m, l, acc, first, g, base + STEP, n);
        f32 high = larger(now.m, top);
        UNROLL for (u32 by = 1; by < STEP; by <<= 1) high = larger(high, lane_up(high, by));
        f32 before = lane_up(high, 1);
        before = lane() == 0 ? top : before;
        u32 live = ballot(now.m != LOWEST);
        f32 fa = exp_(before - high), fb = exp_(now.m - high), fl = now.l * fb;
        top = lane_read(high, STEP - 1u);
        UNROLL for (u32 i = 0; i < STEP; i++) {
            f32 wa = lane_read(fa, i), wb = lane_read(fb, i), wl = lane_read(fl, i);
            bool is_live = live >> i & 1u;
            // the first live chunk sets the state: its own factor is exp(0) = 1
            f32 next_sum = any ? fma_(sum, wa, wl) : wl;
#if STRATA_BROKEN == 2
            f32 next_a = any ? fma_(now.x[i], wb, a * wa) : now.x[i];  // for the suites: the other product rounded
#else
            f32 next_a = any ? fma_(a, wa, now.x[i] * wb) : now.x[i];
#endif
            sum = is_live ? next_sum : sum;
            a = is_live ? next_a : a;
            any = any || is_live;
        }
        if constexpr (TWO_STEPS) now = next;
        else now = load_partials(m, l, acc, first, g, base + STEP, n);
    }
    f32 r = any ? div_(a, sum) : 0.0f;
    if constexpr (ROTATED) r = rotate_back(r);
    out[((u64)query * heads + head) * HEAD_DIM + thread_x()] = r;
}
KERNEL(256) attn_merge(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks, i32 group) {
    merge_chunks<false>(steps, m, l, acc, out, chunks, group);
}
KERNEL(256) attn_merge_rotated(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks, i32 group) {
    merge_chunks<true>(steps, m, l, acc, out, chunks, group);
}
