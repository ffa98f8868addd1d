// Float matrices with many tokens in f32: the lane tree of eight partial sums (NUMERICS.md 1.4), every FMA in order.
// A workgroup makes 64 rows for 32 tokens. Eight neighbouring lanes share their outputs, a partial sum each; a lane's values of
// a stage lie together in shared memory, so that one read of 16 bytes serves four steps of eight rows or tokens.
#include "products/mat_vec_float.cuh"

#define FLOAT_DEPTH 32u
#define FLOAT_ROWS 64u
#define FLOAT_TOKENS 32u

// What stands for a weight beyond the end of a row: fma(-0, 0, p) is p for every p, -0 too.
#define NO_WEIGHT (-0.0f)

// Values at, at + 8, at + 16, at + 24 of a repacked row of weights.
template <class W> DEVICE F4 weights_of(const u8* row, u32 at, u32 n_in) {
    constexpr u32 group = W::EACH * 8u, size = sizeof(typename W::Word);
    const typename W::Word* w = (const typename W::Word*)row;
    f32 v[4];
    const u32 first = at / group * group, l = at % 8u;
    const bool whole = first + group <= n_in;
    UNROLL for (u32 i = 0; i < 4; i++) {
        u32 k = at + 8u * i;
        u32 from = whole ? first + l * (16u / size) + (k - first) / 8u : k;
        v[i] = k < n_in ? W::one(w[from]) : NO_WEIGHT;
    }
    return F4{v[0], v[1], v[2], v[3]};
}

template <class W> DEVICE void gemm_float(const u8* RESTRICT weights, const f32* RESTRICT x, f32* RESTRICT out, u32 n_in, u32 n_out, u32 n) {
    SHARED(F4, w, [2][FLOAT_ROWS][8]);
    SHARED(F4, a, [2][FLOAT_TOKENS][8]);
    const u32 first_row = block_y() * FLOAT_ROWS, first_token = block_x() * FLOAT_TOKENS;
    const u32 l = lane() & 7u, unit = thread_x() >> 3;
    const u32 my_row = wave() % 2u * 32u + (lane() >> 3), my_token = wave() / 2u * 8u;
    const u8* rows[2];
    UNROLL for (u32 h = 0; h < 2; h++) rows[h] = weights + (u64)smaller(first_row + unit + 32u * h, n_out - 1u) * n_in * sizeof(typename W::Word);
    const f32* token = x + (u64)smaller(first_token + unit, n - 1u) * n_in;
    f32 sum[8][8] = {};
    F4 next_w[2], next_a;
    auto fetch = [&](u32 at) {
        UNROLL for (int h = 0; h < 2; h++) next_w[h] = weights_of<W>(rows[h], at + l, n_in);
        f32 v[4];
        UNROLL for (u32 i = 0; i < 4; i++) v[i] = at + l + 8u * i < n_in ? token[at + l + 8u * i] : 0.0f;
        next_a = F4{v[0], v[1], v[2], v[3]};
    };
    auto store = [&](u32 buffer) {
        UNROLL for (int h = 0; h < 2; h++) w[buffer][unit + 32 * h][l] = next_w[h];
        a[buffer][unit][l] = next_a;
    };
    fetch(0);
    store(0);
    barrier();
    u32 buffer = 0;
    NO_UNROLL for (u32 at = 0; at < n_in; at += FLOAT_DEPTH, buffer ^= 1u) {
        const bool more = at + FLOAT_DEPTH < n_in;
        if (more) fetch(at + FLOAT_DEPTH);
        F4 v[8];
        UNROLL for (int i = 0; i < 8; i++) v[i] = w[buffer][my_row + 4 * i][l];
        UNROLL for (int j = 0; j < 8; j++) {
            const F4 y = a[buffer][my_token + j][l];
            UNROLL for (int i = 0; i < 8; i++)
                sum[i][j] = fma_(v[i].w, y.w, fma_(v[i].z, y.z, fma_(v[i].y, y.y, fma_(v[i].x, y.x, sum[i][j]))));
        }
        if (more) store(buffer ^ 1u);
        barrier();
    }
    UNROLL for (int i = 0; i < 8; i++) {
        f32 mine = 0.0f;
        UNROLL for (int j = 0; j < 8; j++) {
            f32 y = sum[i][j];
            y = y + lane_xor<4>(y);
            y = y + lane_xor<2>(y);
            y = y + lane_xor<1>(y);
            mine = l == (u32)j ? y : mine;
        }
        const u32 row = first_row + my_row + 4u * i, t = first_token + my_token + l;
        if (row < n_out && t < n) out[(u64)t * n_out + row] = mine;
    }
}
#define GEMM_FLOAT(name, W)                                                                                                          \
    KERNEL(256) gemm_##name(const u8* RESTRICT weights, const f32* RESTRICT x, f32* RESTRICT out, i32 n_in, i32 n_out, i32 n) { \
        gemm_float<W>(weights, x, out, (u32)n_in, (u32)n_out, (u32)n);                                                               \
    }
GEMM_FLOAT(f32, WeightF32)
GEMM_FLOAT(f16, WeightF16)
GEMM_FLOAT(bf16, WeightBF16)
