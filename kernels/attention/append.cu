// Appends cells to the KV pools (grid: cells, KV heads, keys and values): one wave encodes one row as strata_ops::qsa::kv
// does. Positions come from the step records, so a batch gives the bits of single appends.
#include "attention/common.cuh"

// Halves, to nearest even.
struct HalfWriter {
    static constexpr bool rotated = false;
    static __device__ inline void write(const f32 (&x)[8], u8* RESTRICT rows, u16* RESTRICT, u64 row) {
        u32 w[4];
        UNROLL for (int i = 0; i < 4; i++) w[i] = half_of_float(x[2 * i]) | (u32)half_of_float(x[2 * i + 1]) << 16;
        *(U4*)(rows + row * 512u + 16u * lane()) = U4{w[0], w[1], w[2], w[3]};
    }
};
// Signed bytes under a half for each 64; codes divide by the stored scale.
struct Int8Writer {
    static constexpr bool rotated = false;
    static __device__ inline void write(const f32 (&x)[8], u8* RESTRICT rows, u16* RESTRICT scales, u64 row) {
        f32 a = amax_of(x);
        a = larger(a, lane_xor<4>(a));
        a = larger(a, lane_xor<2>(a));
        a = larger(a, lane_xor<1>(a));
        u16 stored = half_of_float(div_(a, 127.0f));
#if defined(STRATA_BROKEN_SCALE)
        f32 s = div_(a, 127.0f);  // for the suites: the scale before rounding
#else
        f32 s = float_of_half(stored);
#endif
        u32 w[2] = {0u, 0u};
        UNROLL for (int i = 0; i < 8; i++) {
            f32 c = rint_(div_(x[i], s));
            c = c > 127.0f ? 127.0f : c;
            c = c < -127.0f ? -127.0f : c;
            c = s == 0.0f || c != c ? 0.0f : c;
            w[i >> 2] |= ((u32)int_of_rounded(c) & 255u) << 8 * (i & 3);
        }
        *(U2*)(rows + row * HEAD_DIM + 8u * lane()) = U2{w[0], w[1]};
        if ((lane() & 7u) == 0) scales[row * SCALES + (lane() >> 3)] = stored;
    }
};
// Rotated; blocks of a half and 32 4-bit codes.
struct Q4Writer {
    static constexpr bool rotated = true;
    // the value of larger magnitude, of two such the positive one
    static __device__ inline f32 extreme(f32 m, f32 v) {
        f32 a = magnitude(v), b = magnitude(m);
        return a > b || (a == b && v > m) ? v : m;
    }
    static __device__ inline void write(const f32 (&x)[8], u8* RESTRICT rows, u16* RESTRICT, u64 row) {
        f32 m = 0.0f;
        UNROLL for (int i = 0; i < 8; i++) m = extreme(m, x[i]);
        m = extreme(m, lane_xor<2>(m));
        m = extreme(m, lane_xor<1>(m));
        f32 d = div_(m, -8.0f), id = d == 0.0f ? 0.0f : div_(1.0f, d);
        u32 w[2] = {0u, 0u};
        UNROLL for (int i = 0; i < 8; i++) {
            f32 c = x[i] * id + 8.5f;
            c = c > 15.0f ? 15.0f : c;
            c = c >= 0.0f ? c : 0.0f;
            w[i >> 2] |= (u32)(i32)c << 8 * (i & 3);
        }
        // lanes 0, 1 of four hold bytes' low codes, lanes 2, 3 the high ones
        u32 high[2] = {lane_xor<2>(w[0]), lane_xor<2>(w[1])};
        u16* block = (u16*)(rows + row * Q4_ROW + 18u * (lane() >> 2));
        if ((lane() & 3u) == 0) block[0] = half_of_float(d);
        if (!(lane() & 2u)) {
            u16* to = block + 1 + 4u * (lane() & 1u);
            UNROLL for (int i = 0; i < 2; i++) {
                u32 codes = w[i] | high[i] << 4;
                to[2 * i] = (u16)codes;
                to[2 * i + 1] = (u16)(codes >> 16);
            }
        }
    }
};

#define APPEND_ARGS                                                                                                                \
    const i32 *RESTRICT steps, const i32 *RESTRICT table, const f32 *RESTRICT new_k, const f32 *RESTRICT new_v, u8 *RESTRICT k,    \
        u16 *RESTRICT ks, u8 *RESTRICT v, u16 *RESTRICT vs, i32 table_stride
#define APPEND_PASS steps, table, new_k, new_v, k, ks, v, vs, table_stride

template <class Writer> DEVICE void append_row(const f32* RESTRICT from, u8* RESTRICT rows, u16* RESTRICT scales, i32 row) {
    const F4* at = (const F4*)(from + ((u64)block_x() * grid_y() + block_y()) * HEAD_DIM + 8u * lane());
    F4 a = at[0], b = at[1];
    f32 x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    if constexpr (Writer::rotated) rotate_row(x);
    Writer::write(x, rows, scales, (u64)(u32)row);
}
// The page of an appended cell must be resident; a cell without one is not stored.
template <class Keys, class Values> DEVICE void append_cell(APPEND_ARGS) {
    i32 row = physical_row(table + (u64)block_x() * (u32)table_stride, steps[4u * block_x()], block_y(), grid_y());
    if (row < 0) return;
    if (block_z() == 0) append_row<Keys>(new_k, k, ks, row);
    else append_row<Values>(new_v, v, vs, row);
}
KERNEL(32) kv_append_fp16(APPEND_ARGS) { append_cell<HalfWriter, HalfWriter>(APPEND_PASS); }
KERNEL(32) kv_append_int8(APPEND_ARGS) { append_cell<Int8Writer, Int8Writer>(APPEND_PASS); }
KERNEL(32) kv_append_q4_0(APPEND_ARGS) { append_cell<Q4Writer, Q4Writer>(APPEND_PASS); }
KERNEL(32) kv_append_k8v4(APPEND_ARGS) { append_cell<Int8Writer, Q4Writer>(APPEND_PASS); }
