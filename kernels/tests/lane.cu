// Unit tests of the words: each kernel shows what one word gives for every lane of a wave.
#include "common/digits.cuh"
#include "common/math.cuh"
#include "common/matrix.cuh"

// out[7][32]: xor 16, 8, 4, 2, 1; the lane named by from; the wave's sum.
KERNEL(32) test_lanes(const u32* RESTRICT in, const u32* RESTRICT from, u32* RESTRICT out) {
    u32 l = lane(), v = in[l];
    out[l] = lane_xor<16>(v);
    out[32 + l] = lane_xor<8>(v);
    out[64 + l] = lane_xor<4>(v);
    out[96 + l] = lane_xor<2>(v);
    out[128 + l] = lane_xor<1>(v);
    out[160 + l] = lane_get(v, from[l]);
    out[192 + l] = wave_sum(v);
    out[224 + l] = wave_scan(v);
    out[256 + l] = ballot(v & 1u);
}
KERNEL(32) test_wave_sum(const f32* RESTRICT in, f32* RESTRICT out) { out[lane()] = wave_sum(in[lane()]); }

// out[5][32]: permutes, lookups and the transpose of four lanes' bytes.
KERNEL(32) test_bytes(const u32* RESTRICT in, const u32* RESTRICT index, const u32* RESTRICT table, u32* RESTRICT out) {
    u32 l = lane(), v = in[l], t[4] = {table[0], table[1], table[2], table[3]};
    out[l] = byte_permute<0x0527>(v, ~v);
    out[32 + l] = byte_lookup(t[0], t[1], index[l] & 0x07070707u);
    out[64 + l] = byte_lookup16(t, index[l] & 0x0f0f0f0fu);
    out[96 + l] = byte_transpose_quad(v);
    out[128 + l] = (u32)dot4(v, index[l], (i32)l);
}

// A sum over a workgroup of eight waves, through shared memory and each barrier; the last wave reads what others wrote.
KERNEL(256) test_barriers(const u32* RESTRICT in, u32* RESTRICT out) {
    SHARED(u32, part, [8]);
    SHARED(u32, turned, [256]);
    u32 t = thread_x(), s = wave_sum(in[t]);
    if (lane() == 0) part[wave()] = s;
    turned[255 - t] = in[t];
    barrier_lds();
    u32 total = 0;
    for (int w = 0; w < 8; w++) total += part[w];
    u32 mine = turned[t];
    barrier_lds_loads();
    turned[t] = mine + total;
    barrier();
    out[t] = turned[255 - t];
}

// Copies through shared memory by async copies in two batches.
KERNEL(64) test_async(const U4* RESTRICT in, U4* RESTRICT out) {
    SHARED(U4, stage, [2][64]);
    u32 t = thread_x();
    async_copy16(&stage[0][t], &in[t]);
    async_commit();
    async_copy16(&stage[1][t], &in[64 + t]);
    async_commit();
    async_wait<1>();
    barrier();
    out[t] = stage[0][63 - t];
    async_wait<0>();
    barrier();
    out[64 + t] = stage[1][63 - t];
}

KERNEL(256) test_math(const f32* RESTRICT in, f32* RESTRICT out, i32 n) {
    u32 i = block_x() * 256u + thread_x();
    if ((i32)i < n) {
        f32 x = in[i];
        out[i] = exp_(x);
        out[n + i] = div_(x, 3.0f);
        out[2 * n + i] = sqrt_(magnitude(x));
        out[3 * n + i] = float_of_half(half_of_float(x));
        out[4 * n + i] = float_of_int(digit_integer(x, 1000.0f));
        Digits d = digits_of(digit_integer(x, 1000.0f));
        out[5 * n + i] = digit_join(d.d0, d.d1, d.d2);
    }
}

#if STRATA_MATRIX
// C = A B of one tile: a[M][K], b[N][K] bytes, c[M][N].
KERNEL(32) test_matrix_s8(const i8* RESTRICT a, const i8* RESTRICT b, i32* RESTRICT c) {
    typedef MatrixS8 X;
    u32 x[X::A], y[X::B];
    i32 z[X::C] = {};
    UNROLL for (int r = 0; r < X::A; r++) x[r] = *(const u32*)(a + X::a_row(r) * X::K + X::a_depth(r));
    UNROLL for (int r = 0; r < X::B; r++) y[r] = *(const u32*)(b + X::b_column(r) * X::K + X::b_depth(r));
    X::multiply(z, x, y);
    UNROLL for (int i = 0; i < X::C; i++) c[X::c_row(i) * X::N + X::c_column(i)] = z[i];
}
KERNEL(32) test_matrix_f16(const u16* RESTRICT a, const u16* RESTRICT b, f32* RESTRICT c) {
    typedef Matrix16 X;
    u32 x[X::A], y[X::B];
    f32 z[X::C] = {};
    UNROLL for (int r = 0; r < X::A; r++) x[r] = *(const u32*)(a + X::a_row(r) * X::K + X::a_depth(r));
    UNROLL for (int r = 0; r < X::B; r++) y[r] = *(const u32*)(b + X::b_column(r) * X::K + X::b_depth(r));
    X::multiply_f16(z, x, y);
    UNROLL for (int i = 0; i < X::C; i++) c[X::c_row(i) * X::N + X::c_column(i)] = z[i];
}
#endif
#if STRATA_SHIM
// What a kernel must not do; the shim says so.
KERNEL(32) test_divergent(const u32* RESTRICT in, u32* RESTRICT out) {
    u32 v = in[lane()];
    if (lane() < 16) v = lane_xor<1>(v);
    else v = lane_xor<16>(v);
    out[lane()] = v;
}
KERNEL(32) test_unwaited(const U4* RESTRICT in, u32* RESTRICT out) {
    SHARED(U4, stage, [32]);
    async_copy16(&stage[lane()], &in[lane()]);
    async_commit();
    barrier();
    out[lane()] = stage[lane()].x;
}
// Past the end of an array if `at` says so: sanitizers must see it.
KERNEL(32) test_overrun(const u32* RESTRICT at, u32* RESTRICT out) {
    SHARED(u32, stage, [32]);
    u32* to = stage;
    to[at[lane()]] = lane();
    barrier();
    out[lane()] = stage[lane()];
}
#endif
