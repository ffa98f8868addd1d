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

// The same a head at a time, masked cells passed over: what the published baseline does. `weights` is f32[12][64].
template <class Rows>
DEVICE void plain_tail(const u8* RESTRICT v, const u16* RESTRICT vs, const i32* rows, u32 cells, const f32* scores, f32* weights, f32* RESTRICT m,
                       f32* RESTRICT l, f32* RESTRICT acc, i32 group) {
    u32 head = thread_x() >> 4, j = thread_x() & 15u;
    f32 p[4];
    Softmax s = chunk_softmax(scores, rows, smaller(head, GROUP_MAX - 1), j, p);
    store_softmax(m, l, group, head, j, s);
    if (head < GROUP_MAX) {
        UNROLL for (u32 i = 0; i < 4; i++) weights[head * CHUNK + j + 16u * i] = p[i];
    }
    barrier_lds();
    u32 t = thread_x() & 63u;
    f32* to = acc + chunk_slot(group) * HEAD_DIM;
    NO_UNROLL for (u32 h = thread_x() >> 6; (i32)h < group; h += 4) {
        f32 sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        NO_UNROLL for (u32 c = 0; c < cells; c++) {
            if (rows[c] < 0) continue;
            f32 x[4], e = weights[h * CHUNK + c];
            Rows::decode(Rows::four(v, vs, rows[c], t), t, x);
            UNROLL for (int i = 0; i < 4; i++) sum[i] = fma_(e, x[i], sum[i]);
        }
        UNROLL for (int i = 0; i < 4; i++) to[h * HEAD_DIM + Rows::dim(t, i)] = sum[i];
    }
}
