// The second half of a chunk with float values: weights, then weighted values (256 threads).
#pragma once
#include "attention/decode.cuh"
#include "attention/float_rows.cuh"

template <class Rows, u32 HEADS>
DEVICE void float_sums(const u8* RESTRICT v, const u16* RESTRICT vs, const i32* rows, u32 cells, const f32* weights, f32* RESTRICT acc, i32 group) {
    f32 sum[HEADS][4];
    float_values<Rows, HEADS>(v, vs, rows, cells, (const F4*)weights, sum);
    u32 set = thread_x() >> 6, t = thread_x() & 63u;
    f32* to = acc + chunk_slot(group) * HEAD_DIM;
    UNROLL for (u32 h = 0; h < HEADS; h++) {
        u32 head = HEADS * set + h;
        if ((i32)head < group) {
            UNROLL for (int i = 0; i < 4; i++) to[head * HEAD_DIM + Rows::dim(t, i)] = sum[h][i];
        }
    }
}
// `weights` is f32[4][64][4] of shared memory that nothing else uses any more.
template <class Rows>
DEVICE void float_tail(const u8* RESTRICT v, const u16* RESTRICT vs, const i32* rows, u32 cells, const f32* scores, f32* weights, f32* RESTRICT m,
                       f32* RESTRICT l, f32* RESTRICT acc, i32 group) {
    u32 h = thread_x() >> 4, j = thread_x() & 15u;
    f32 p[4];
    Softmax s = chunk_softmax(scores, rows, smaller(h, GROUP_MAX - 1), j, p);
    store_softmax(m, l, group, h, j, s);
    if (group <= 4) {
        if (h < 4) store_weights<1>(p, h, j, weights);
    } else if (h < GROUP_MAX) {
        store_weights<3>(p, h, j, weights);
    }
    barrier_lds();
    if (group <= 4) float_sums<Rows, 1>(v, vs, rows, cells, weights, acc, group);
    else float_sums<Rows, 3>(v, vs, rows, cells, weights, acc, group);
}
