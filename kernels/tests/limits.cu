// What a card can do at most: reading, copying, and arithmetic of each unit the kernels use.
#include "common/matrix.cuh"

// Reads n 16-byte words, eight in flight a thread; a fold that the data cannot give keeps the reads.
KERNEL(256) limit_read(const U4* RESTRICT in, u32* RESTRICT out, i64 n) {
    i64 step = (i64)grid_x() * 256, i = (i64)block_x() * 256 + thread_x();
    u32 fold = 0;
    for (; i + 7 * step < n; i += 8 * step) {
        U4 v[8];
        UNROLL for (int k = 0; k < 8; k++) v[k] = load_once(&in[i + k * step]);
        UNROLL for (int k = 0; k < 8; k++) fold |= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) {
        U4 v = load_once(&in[i]);
        fold |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (fold == 0xdeadbeefu) out[0] = fold;
}
KERNEL(256) limit_copy(const U4* RESTRICT in, U4* RESTRICT out, i64 n) {
    i64 step = (i64)grid_x() * 256, i = (i64)block_x() * 256 + thread_x();
    for (; i + 3 * step < n; i += 4 * step) {
        U4 v[4];
        UNROLL for (int k = 0; k < 4; k++) v[k] = load_once(&in[i + k * step]);
        UNROLL for (int k = 0; k < 4; k++) out[i + k * step] = v[k];
    }
    for (; i < n; i += step) out[i] = in[i];
}
// 16 chains of `turns` FMAs a thread.
KERNEL(256) limit_fma(f32* RESTRICT out, f32 a, f32 b, i32 turns) {
    f32 x[16];
    UNROLL for (int k = 0; k < 16; k++) x[k] = float_of_int((i32)thread_x() + k);
    NO_UNROLL for (i32 i = 0; i < turns; i += 8) UNROLL for (int j = 0; j < 8; j++) UNROLL for (int k = 0; k < 16; k++) x[k] = fma_(x[k], a, b);
    f32 s = 0.0f;
    UNROLL for (int k = 0; k < 16; k++) s += x[k];
    if (s == 1.25f) out[0] = s;
}
// 16 chains of `turns` four-way dots a thread.
KERNEL(256) limit_dot4(u32* RESTRICT out, u32 a, i32 turns) {
    i32 x[16];
    UNROLL for (int k = 0; k < 16; k++) x[k] = (i32)thread_x() + k;
    NO_UNROLL for (i32 i = 0; i < turns; i += 8) UNROLL for (int j = 0; j < 8; j++) UNROLL for (int k = 0; k < 16; k++) x[k] = dot4((u32)x[k], a, x[k]);
    i32 s = 0;
    UNROLL for (int k = 0; k < 16; k++) s += x[k];
    if (s == 1234567) out[0] = (u32)s;
}
#if STRATA_MATRIX
// 8 chains of `turns` matrix products a wave.
KERNEL(128) limit_matrix_s8(u32* RESTRICT out, u32 seed, i32 turns) {
    typedef MatrixS8 X;
    u32 a[X::A], b[X::B];
    i32 c[8][X::C] = {};
    UNROLL for (int r = 0; r < X::A; r++) a[r] = seed * (r + 1) + (thread_x() & 15u);
    UNROLL for (int r = 0; r < X::B; r++) b[r] = seed * (r + 3) + (thread_x() & 15u);
    NO_UNROLL for (i32 i = 0; i < turns; i += 8) UNROLL for (int j = 0; j < 8; j++) UNROLL for (int k = 0; k < 8; k++) X::multiply(c[k], a, b);
    i32 s = 0;
    UNROLL for (int k = 0; k < 8; k++) UNROLL for (int i = 0; i < X::C; i++) s += c[k][i];
    if (s == 1234567) out[0] = (u32)s;
}
KERNEL(128) limit_matrix_f16(u32* RESTRICT out, u32 seed, i32 turns) {
    typedef Matrix16 X;
    u32 a[X::A], b[X::B];
    f32 c[8][X::C] = {};
    UNROLL for (int r = 0; r < X::A; r++) a[r] = (seed * (r + 1) + (thread_x() & 15u)) & 0x3bff3bffu;
    UNROLL for (int r = 0; r < X::B; r++) b[r] = (seed * (r + 3) + (thread_x() & 15u)) & 0x3bff3bffu;
    NO_UNROLL for (i32 i = 0; i < turns; i += 8) UNROLL for (int j = 0; j < 8; j++) UNROLL for (int k = 0; k < 8; k++) X::multiply_f16(c[k], a, b);
    f32 s = 0;
    UNROLL for (int k = 0; k < 8; k++) UNROLL for (int i = 0; i < X::C; i++) s += c[k][i];
    if (s == 1.25f) out[0] = bits_of(s);
}
#endif
