// The merge of chunks of NUMERICS.md section 3: in ascending order, chunks without a live cell skipped. One workgroup a
// query head (grid: heads, queries), one thread a dimension.
#include "attention/common.cuh"

// Chunks whose partials are read ahead.
constexpr u32 AHEAD = 16;

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

// out = A / L, or +0 with no live chunk. Chunks past the query's selection are not read. Lane c of each wave makes the
// factors of chunk c of 32: largest scores so far by a scan, then a = exp(M - M'), b = exp(m - M').
template <bool ROTATED>
DEVICE void merge_chunks(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks,
                         i32 group) {
    u32 head = block_x(), query = block_y(), heads = grid_x(), g = (u32)group, d = thread_x();
    u64 first = ((u64)query * heads + head / g * g) * (u32)chunks + head % g;  // [query][kv head][chunk][group]
    i32 width = steps[4u * query + 3u];
    u32 n = width <= 0 ? 0u : smaller((u32)chunks, ((u32)width + CHUNK - 1u) / CHUNK);
    f32 top = LOWEST, sum = 0.0f, a = 0.0f;
    bool any = false;
    NO_UNROLL for (u32 base = 0; base < n; base += 32) {
        u32 c = base + lane();
        bool in = c < n;
        u64 at = first + (u64)(in ? c : base) * g;
        f32 mc = in ? m[at] : LOWEST, lc = l[at];
        // scan of maxima
        f32 high = larger(mc, top);
        UNROLL for (u32 by = 1; by < 32; by <<= 1) {
            f32 other = lane_up(high, by);
            high = larger(high, other);
        }
        f32 before = lane_up(high, 1);
        before = lane() == 0 ? top : before;
        u32 live = ballot(mc != LOWEST);
        f32 fa = exp_(before - high), fb = exp_(mc - high);
        f32 lb = lc * fb;
        top = lane_read(high, 31);
        NO_UNROLL for (u32 from = 0; from < 32 && base + from < n; from += AHEAD) {
            f32 x[AHEAD];
            UNROLL for (u32 i = 0; i < AHEAD; i++) {
                u32 at_chunk = smaller(base + from + i, n - 1u);
                x[i] = acc[(first + (u64)at_chunk * g) * HEAD_DIM + d];
            }
            UNROLL for (u32 i = 0; i < AHEAD; i++) {
                u32 from_lane = from + i;
                f32 wa = lane_read(fa, from_lane), wb = lane_read(fb, from_lane), wl = lane_read(lb, from_lane);
                bool is_live = live >> from_lane & 1u;
                // the first live chunk sets the state: its own factor is exp(0) = 1
                f32 next_sum = any ? fma_(sum, wa, wl) : wl, next = any ? fma_(a, wa, x[i] * wb) : x[i];
                sum = is_live ? next_sum : sum;
                a = is_live ? next : a;
                any = any || is_live;
            }
        }
    }
    f32 r = any ? div_(a, sum) : 0.0f;
    if constexpr (ROTATED) r = rotate_back(r);
    out[((u64)query * heads + head) * HEAD_DIM + d] = r;
}
KERNEL(256) attn_merge(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks, i32 group) {
    merge_chunks<false>(steps, m, l, acc, out, chunks, group);
}
KERNEL(256) attn_merge_rotated(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks, i32 group) {
    merge_chunks<true>(steps, m, l, acc, out, chunks, group);
}
