// The merge of chunks of NUMERICS.md section 3: in ascending order, chunks without a live cell skipped. One workgroup a
// query head (grid: heads of a group, KV heads, queries), one thread a dimension.
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
// Chunks `base` on of n; past the end the last again, as a dead one.
DEVICE Partials load_partials(const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, u64 first, u32 group, u32 base, u32 n) {
    Partials p;
    UNROLL for (u32 i = 0; i < STEP; i++) p.x[i] = (acc + (first + (u64)smaller(base + i, n - 1u) * group) * HEAD_DIM)[thread_x()];
    u32 c = base + (lane() & (STEP - 1u));
    u64 at = first + (u64)smaller(c, n - 1u) * group;
    f32 mc = m[at];
    p.m = c < n ? mc : LOWEST;
    p.l = l[at];
    return p;
}
constexpr f32 DEAD = 0.0f, LIVE = 1.0f, FIRST = 2.0f;

// out = A / L, or +0 with no live chunk. Chunks past the query's selection are not read. Lane c makes the factors of
// chunk c of a step: the largest score so far by a scan, then a = exp(M - M'), b = exp(m - M').
template <bool ROTATED>
DEVICE void merge_chunks(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks) {
    u32 g = grid_x();
    u64 kv_head = (u64)block_z() * grid_y() + block_y(), first = kv_head * (u32)chunks * g + block_x();  // [query][kv head][chunk][group]
    i32 width = steps[4u * block_z() + 3u];
    u32 n = width <= 0 ? 0u : smaller((u32)chunks, ((u32)width + CHUNK - 1u) / CHUNK);
    SHARED(F4, factors, [8][STEP]);  // of each wave: a, b, l * b, DEAD, LIVE or FIRST
    F4* mine = factors[wave()];
    f32 top = LOWEST, sum = 0.0f, a = 0.0f;
    Partials now = {};
    if (n) now = load_partials(m, l, acc, first, g, 0, n);
    NO_UNROLL for (u32 base = 0; base < n; base += STEP) {
        Partials next;
        if constexpr (TWO_STEPS) next = load_partials(m, l, acc, first, g, base + STEP, n);
        f32 high = larger(now.m, top);
        UNROLL for (u32 by = 1; by < STEP; by <<= 1) high = larger(high, lane_up(high, by));
        f32 before = lane_up(high, 1);
        before = lane() == 0 ? top : before;
        top = lane_get(high, STEP - 1u);
        f32 b = exp_(now.m - high), kind = before == LOWEST ? FIRST : LIVE;
        F4 factor = {exp_(before - high), b, now.l * b, now.m == LOWEST ? DEAD : kind};
        wave_sync();
        if (lane() < STEP) mine[lane()] = factor;
        wave_sync();
        UNROLL for (u32 i = 0; i < STEP; i++) {
            F4 f = mine[i];
#if defined(STRATA_BROKEN_MERGE)
            f32 merged = fma_(now.x[i], f.y, a * f.x);  // for the suites: the other product rounded
#else
            f32 merged = fma_(a, f.x, now.x[i] * f.y);
#endif
            f32 total = fma_(sum, f.x, f.z);
            // the first live chunk sets the state: its own factor is exp(0) = 1
            merged = f.w == FIRST ? now.x[i] : merged;
            total = f.w == FIRST ? f.z : total;
            a = f.w == DEAD ? a : merged;
            sum = f.w == DEAD ? sum : total;
            // or the compiler reads every factor at once, at four registers each
            if (STRATA_HIP && i % 2 == 1) wave_sync();
        }
        if constexpr (TWO_STEPS) now = next;
        else now = load_partials(m, l, acc, first, g, base + STEP, n);
    }
    f32 r = div_(a, sum);
    r = top == LOWEST ? 0.0f : r;
    if constexpr (ROTATED) r = rotate_back(r);
    out[(kv_head * g + block_x()) * HEAD_DIM + thread_x()] = r;
}
KERNEL(256) attn_merge(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks) {
    merge_chunks<false>(steps, m, l, acc, out, chunks);
}
KERNEL(256) attn_merge_rotated(const i32* RESTRICT steps, const f32* RESTRICT m, const f32* RESTRICT l, const f32* RESTRICT acc, f32* RESTRICT out, i32 chunks) {
    merge_chunks<true>(steps, m, l, acc, out, chunks);
}
