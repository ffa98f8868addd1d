// Keys of the block scorer (strata_ops::qsa::index_key): a new cell's raw key goes into a ring; the cell that completes a
// block makes its pooled key; cell 0 makes the key of incomplete tails. One wave a new cell.
#include "side/side.cuh"

constexpr u32 INDEX_DIM = 128, ROTATED_HALF = 32;

// Lane L holds values L, L + 32, L + 64, L + 96, which are its part of the lane tree of squares.
DEVICE void norm_key(f32 (&x)[4], const f32* RESTRICT gain, f32 eps) {
    f32 p = 0.0f;
    UNROLL for (int i = 0; i < 4; i++) p = fma_(x[i], x[i], p);
    f32 r = div_(1.0f, sqrt_(div_(wave_sum(p), 128.0f) + eps));
    UNROLL for (int i = 0; i < 4; i++) x[i] = (x[i] * r) * gain[lane() + 32 * i];
}
DEVICE void store_key(const f32 (&x)[4], f32* RESTRICT to) {
    UNROLL for (int i = 0; i < 4; i++) to[lane() + 32 * i] = x[i];
}
// `raw` has the new cells' keys, cell i at position steps[4 i]; positions rise by one. `ring` keeps the raw key of cell c at
// c % ring_cells, at least 4 more than a batch has cells. cos and sin are [position][32].
KERNEL(32) index_key_append(const i32* RESTRICT steps, const f32* RESTRICT raw, const f32* RESTRICT gain, const f32* RESTRICT cos, const f32* RESTRICT sin,
                            f32* RESTRICT ring, f32* RESTRICT pooled, f32* RESTRICT dead, f32 eps, i32 ring_cells) {
    u32 i = block_x();
    i32 pos = steps[4u * i];
    f32 own[4];
    UNROLL for (int j = 0; j < 4; j++) own[j] = raw[(u64)i * INDEX_DIM + lane() + 32 * j];
    store_key(own, ring + (u64)(u32)(pos % ring_cells) * INDEX_DIM);
    if (pos == 0) {
        f32 x[4] = {own[0], own[1], own[2], own[3]};
        norm_key(x, gain, eps);
        store_key(x, dead);
    }
    if ((pos & 3) != 3) return;
    f32 x[4];
    UNROLL for (int j = 0; j < 4; j++) {
        f32 key[4];
        UNROLL for (u32 c = 0; c < 3; c++) {
            u32 back = 3u - c;
            const f32* from = i >= back ? raw + (u64)(i - back) * INDEX_DIM : ring + (u64)(u32)((pos - (i32)back) % ring_cells) * INDEX_DIM;
            key[c] = from[lane() + 32 * j];
        }
        x[j] = ((key[0] + key[1]) + (key[2] + own[j])) * 0.25f;
    }
    norm_key(x, gain, eps);
    u64 at = (u64)(u32)(pos - 3) * ROTATED_HALF + lane();
    f32 a = x[0], b = x[1], c = cos[at], s = sin[at];
    x[0] = a * c - b * s;
    x[1] = b * c + a * s;
    store_key(x, pooled + (u64)(u32)(pos >> 2) * INDEX_DIM);
}
