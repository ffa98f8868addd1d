// Decode attention over float rows (fp16, q4_0): chunk kernels in the defined f32 order. The `plain` ones take a cell and
// a head at a time; the others eight cells a step with shared reductions. Same sums, same trees.
#include "attention/float_tail.cuh"

template <class Rows> DEVICE void stage_floats(const f32* RESTRICT q, i32 group, F4* query) {
    UNROLL for (u32 r = 0; r < 2; r++) {
        f32 x[8];
        load_query<8>(q, group, r, x);
        if constexpr (Rows::rotated) rotate_row(x);
        u32 h = wave() + 8u * r;
        if (h < GROUP_MAX) {
            query[h * 64u + lane()] = F4{x[0], x[1], x[2], x[3]};
            query[h * 64u + 32u + lane()] = F4{x[4], x[5], x[6], x[7]};
        }
    }
}

template <class Rows> DEVICE void chunk_float(CHUNK_ARGS) {
    SHARED(F4, query, [QUERY_UNITS]);  // queries, then weights
    SHARED(f32, scores, [GROUP_MAX * CHUNK]);
    SHARED(i32, rows, [CHUNK]);
    u32 cells = chunk_cells(steps, cap);
    if (!cells) return dead_chunk(m, l, group);
    chunk_rows(ids, table, cap, table_stride, cells, rows);
    barrier_lds();
    typename Rows::Eight raw[8];
    UNROLL for (u32 c = 0; c < 8; c++) raw[c] = Rows::eight(k, ks, rows[wave() + 8u * c]);
    stage_floats<Rows>(q, group, query);
    barrier_lds();
    float_scores<Rows>(raw, query, (u32)group, scores);
    barrier_lds();
    float_tail<Rows>(v, vs, rows, cells, scores, (f32*)query, m, l, acc, group);
}
KERNEL(256) attn_chunk_fp16(CHUNK_ARGS) { chunk_float<HalfRows>(CHUNK_PASS); }
KERNEL(256) attn_chunk_q4_0(CHUNK_ARGS) { chunk_float<Q4Rows>(CHUNK_PASS); }
KERNEL(256) attn_chunk_int8_f32(CHUNK_ARGS) { chunk_float<Int8Rows>(CHUNK_PASS); }

template <class Rows> DEVICE void chunk_plain(CHUNK_ARGS) {
    SHARED(F4, query, [QUERY_UNITS]);
    SHARED(f32, scores, [GROUP_MAX * CHUNK]);
    SHARED(i32, rows, [CHUNK]);
    u32 cells = chunk_cells(steps, cap);
    if (!cells) return dead_chunk(m, l, group);
    chunk_rows(ids, table, cap, table_stride, cells, rows);
    stage_floats<Rows>(q, group, query);
    barrier_lds();
    NO_UNROLL for (u32 c = wave(); c < CHUNK; c += 8) {
        f32 x[8];
        Rows::decode(Rows::eight(k, ks, rows[c]), x);
        NO_UNROLL for (u32 h = 0; (i32)h < group; h++) {
            F4 a = query[h * 64u + lane()], b = query[h * 64u + 32u + lane()];
            f32 s = fma_(x[3], a.w, fma_(x[2], a.z, fma_(x[1], a.y, x[0] * a.x)));
            s = wave_sum(fma_(x[7], b.w, fma_(x[6], b.z, fma_(x[5], b.y, fma_(x[4], b.x, s)))));
            if (lane() == 0) scores[score_at(h, c)] = s * 0.0625f;
        }
    }
    barrier_lds();
    plain_tail<Rows>(v, vs, rows, cells, scores, (f32*)query, m, l, acc, group);
}
KERNEL(256) attn_chunk_fp16_plain(CHUNK_ARGS) { chunk_plain<HalfRows>(CHUNK_PASS); }
KERNEL(256) attn_chunk_q4_0_plain(CHUNK_ARGS) { chunk_plain<Q4Rows>(CHUNK_PASS); }
