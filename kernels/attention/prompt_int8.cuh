// Prompt attention over int8 keys and values by integer digits on matrix instructions: the bits of the definition
// (NUMERICS.md section 3).
//
// A workgroup of four waves takes one query and KV head. Wave w has dimensions 64 w..64 w + 63 (one scale group) in both
// products, so that keys and values are its own: no wave waits for another's loads. Per chunk of 64 cells
//   keys x query digits -> scores of the group -> shared | barrier | softmax, three heads a wave | barrier |
//   weights x scales -> digits in fragment layout -> values x digits -> running merge in registers.
// NVIDIA copies the next chunk's keys during softmax and values, and its values during the next scores; AMD loads keys,
// then values, straight into fragments and transposes values there.
#pragma once
#include "attention/prompt_keys.cuh"

#if STRATA_MATRIX
template <int G> struct PromptShared {
#if STRATA_CUDA
    u8 keys[4][4096], values[4][4096];  // [wave][cell][64]
#endif
    f32 part[4][G * 68];  // [group][head][cell]; first the digits of the query
    f32 p[G][CHUNK_CELLS];
    f32 scale[4][CHUNK_CELLS];  // [group][cell], of keys, then of values
    f32 merge[16][2];
    f32 q_scale[16];
};
// Where the weight of a cell lies in a head's row, and its scale in that of a group (head 0): lanes that read two heads,
// or cells 32 apart, meet no bank twice.
DEVICE u32 folded(u32 head, u32 cell) { return cell ^ (head << 4 & 16u) ^ (cell >> 1 & 16u); }

#if STRATA_HIP
// v[i] byte j and v[j] byte i change places.
DEVICE void byte_transpose(u32 (&v)[4]) {
    u32 a = byte_permute<0x5140>(v[0], v[1]), b = byte_permute<0x7362>(v[0], v[1]);
    u32 c = byte_permute<0x5140>(v[2], v[3]), d = byte_permute<0x7362>(v[2], v[3]);
    v[0] = byte_permute<0x5410>(a, c);
    v[1] = byte_permute<0x7632>(a, c);
    v[2] = byte_permute<0x5410>(b, d);
    v[3] = byte_permute<0x7632>(b, d);
}
#endif

// Weights of the lane's cells times the scales of the wave's group, as digits in the layout of B; the scale of each of
// the lane's sums.
template <int G>
DEVICE void weight_digits(u32 l, const f32* p, const f32* v_scale, u32 (&out)[DigitColumns<G>::tiles][DigitColumns<G>::steps][MatrixS8::B],
                          f32 (&scale)[DigitColumns<G>::heads]) {
#if STRATA_CUDA
    constexpr int more = G == 8 ? 0 : G == 12 ? 2 : 4;  // words of the heads from 8 on
    u32 n = l >> 2, q = l & 3u, quad = l & ~3u, other = G == 12 ? n & 1u : 0u;
    auto products = [&](int i, f32 (&v)[4]) {
        const u32 head = i < 4 ? n : G == 12 ? 8u + (n >> 1) : 8u + n, cell = 4u * q + 16u * (i < 4 ? (u32)i : 2u * other + (i - 4));
        const F4 w = *(const F4*)(p + head * CHUNK_CELLS + folded(head, cell)), s = *(const F4*)(v_scale + folded(0, cell));
        v[0] = w.x * s.x;
        v[1] = w.y * s.y;
        v[2] = w.z * s.z;
        v[3] = w.w * s.w;
    };
    f32 x[4][4], y[4], a = 0.0f, b = 0.0f;
    UNROLL for (int i = 0; i < 4; i++) {
        products(i, x[i]);
        UNROLL for (int j = 0; j < 4; j++) a = max_(a, magnitude(x[i][j]));
    }
    UNROLL for (int i = 4; i < 4 + more; i++) {
        products(i, y);
        UNROLL for (int j = 0; j < 4; j++) b = max_(b, magnitude(y[j]));
    }
    a = max_(a, lane_xor<1>(a));
    a = max_(a, lane_xor<2>(a));
    if (more) {
        b = max_(b, lane_xor<1>(b));
        b = max_(b, lane_xor<2>(b));
        if (G == 12) b = max_(b, lane_xor<4>(b));
    }
    // lane 0 of four divides for the first scale, 1 for its factor, 2 and 3 for the second's
    f32 m = q < 2u ? a : b, ratio = m >= DIGIT_AMAX_MIN ? m : 1.0f;
    ratio = div_(q & 1u ? DIGIT_MAX : ratio, q & 1u ? ratio : DIGIT_MAX);
    ratio = m >= DIGIT_AMAX_MIN ? ratio : 0.0f;
    f32 factor = lane_get(ratio, quad + 1u);
    UNROLL for (int i = 0; i < 4; i++) {
        u32 d[3];
        digit_words(x[i][0], x[i][1], x[i][2], x[i][3], factor, d);
        UNROLL for (int t = 0; t < 3; t++) out[t][i >> 1][i & 1] = d[t];
    }
    if constexpr (more != 0) {
        factor = lane_get(ratio, quad + 3u);
        UNROLL for (int i = 0; i < more; i++) {
            u32 d[3];
            products(4 + i, y);
            digit_words(y[0], y[1], y[2], y[3], factor, d);
            if constexpr (G == 16) {
                UNROLL for (int t = 0; t < 3; t++) out[3 + t][i >> 1][i & 1] = d[t];
            } else {
                // neighbouring columns share a head: each made the digits of one depth step for both
                u32 mine = other ? d[1] : d[0], given = lane_xor<4>(other ? d[0] : d[1]);
                out[3][0][i] = other ? given : mine;
                out[3][1][i] = other ? mine : given;
                given = lane_xor<4>(d[2]);
                out[4][0][i] = other ? given : d[2];
                out[4][1][i] = other ? d[2] : given;
            }
        }
    }
    UNROLL for (int s = 0; s < DigitColumns<G>::heads; s++)
        scale[s] = lane_get(ratio, s < 2 ? 8u * q + 4u * s : G == 12 ? 8u * q + 2u : 8u * q + 4u * (s - 2) + 2u);
#else
    // cells 16 s + 8 half + 4 r..+3 of a column; gfx11 holds both halves
    const u32 half = l >> 4, head = DigitColumns<G>::sum_head(l, 0);
    auto products = [&](int i) {
        const u32 cell = 16u * (i >> 1) + 8u * half + 4u * (i & 1);
        const F4 w = *(const F4*)(p + head * CHUNK_CELLS + folded(head, cell)), s = *(const F4*)(v_scale + folded(0, cell));
        return F4{w.x * s.x, w.y * s.y, w.z * s.z, w.w * s.w};
    };
    f32 a = 0.0f;
    UNROLL for (int i = 0; i < 8; i++) {
        const F4 x = products(i);
        a = max_(max_(a, max_(magnitude(x.x), magnitude(x.y))), max_(magnitude(x.z), magnitude(x.w)));
    }
    a = max_(a, lane_xor<16>(a));
    f32 ratio = a >= DIGIT_AMAX_MIN ? a : 1.0f;
    ratio = div_(half ? DIGIT_MAX : ratio, half ? ratio : DIGIT_MAX);
    ratio = a >= DIGIT_AMAX_MIN ? ratio : 0.0f;
    f32 swapped = lane_xor<16>(ratio), factor = half ? ratio : swapped;
    scale[0] = half ? swapped : ratio;
    UNROLL for (int i = 0; i < 8; i++) {
        u32 d[3];
        const F4 x = products(i);
        digit_words(x.x, x.y, x.z, x.w, factor, d);
        UNROLL for (int t = 0; t < 3; t++) {
#if STRATA_WMMA == 12
            out[t][i >> 1][i & 1] = d[t];
#else
            u32 given = lane_xor<16>(d[t]);
            out[t][i >> 1][i & 1] = half ? given : d[t];
            out[t][i >> 1][2 + (i & 1)] = half ? d[t] : given;
#endif
        }
    }
#endif
}

// Queries and weights as integer digits.
template <int G> struct DigitForm {
    typedef DigitColumns<G> C;
    typedef MatrixS8 X;
    u32 query[C::tiles][C::steps][X::B], weight[C::tiles][C::steps][X::B];
    f32 scale[C::heads];

    static __device__ inline void stage(const f32* q, i32 group, u8* stage, f32* scales) { stage_query<G>(q, group, stage, scales); }
    __device__ inline void take_query(u32 l, u32 w, const u8* stage) { query_digits<G>(l, w, stage, query); }
    __device__ inline void scores(u32 l, u32 w, const u8* tile, const i8* keys, Rows2 rows, const f32* q_scales, const f32* scales, f32* part) {
        key_scores<G>(l, w, tile, keys, rows, query, q_scales, scales, part);
    }
    __device__ inline void take_weights(u32 l, const f32* p, const f32* scales) { weight_digits<G>(l, p, scales, weight, scale); }
    // Weighted values of a tile: `use(row, head, value)`, each a register's number.
    template <class Use> __device__ inline void products(const u32 (&a)[C::steps][X::A], Use use) {
        UNROLL for (int part = 0; part < C::parts; part++) {
            i32 dots[C::tiles][X::C] = {};
            UNROLL for (int k = 0; k < C::steps; k++)
                UNROLL for (int t = C::first_tile(part); t < C::end_tile(part); t++) X::multiply(dots[t], a[k], weight[t][k]);
            UNROLL for (int r = 0; r < C::rows; r++) UNROLL for (int i = C::first_head(part); i < C::end_head(part); i++)
                use(r, i, digit_join(C::sum(dots, 0, r, i), C::sum(dots, 1, r, i), C::sum(dots, 2, r, i)) * scale[i]);
        }
    }
};

// The kernel, for a form of the operands: DigitForm, or HalfForm of prompt_half.cu.
template <int G, class Form> DEVICE void prompt_int8(const PromptArgs<i8, i8> g) {
    typedef DigitColumns<G> C;
    typedef MatrixS8 X;
#if STRATA_CUDA
    DYN_SHARED(PromptShared<G>, shared);
#else
    SHARED(PromptShared<G>, shared, [1]);
#endif
    PromptShared<G>& s = shared[0];
    const u32 thread = thread_x();
    u32 w = thread >> 5, l = thread & 31u;
    const PromptQuery at = prompt_query(g);
    CellFeed feed;
    feed.start(g, at);
    const Rows2 first = feed.rows();
    feed.look_up();
    bool valid_a = first.a >= 0, valid_b = first.b >= 0;
    Rows2 rows = readable(first);
    Half2 k_scale = load_scales(g.k_scale, rows, w), v_scale = load_scales(g.v_scale, rows, w);
#if STRATA_CUDA
    copy_rows<false>(l, s.keys[w], g.k, 64u * w + 16u * (l & 3u), rows);
    async_commit();
    copy_rows<true>(l, s.values[w], g.v, 64u * w + 16u * (l & 3u), rows);
    async_commit();
#endif

    // the query's fragments of this wave's dimensions stay in registers
    Form form;
    Form::stage(g.q + at.first_head * HEAD_DIM, g.group, (u8*)s.part, s.q_scale);
    barrier_lds();
    form.take_query(l, w, (const u8*)s.part);
    barrier_lds();

    // A starts at -0, which a first chunk joins without a change: fma(-0, 0, x * 1) = x
    f32 sums[4][C::rows][C::heads];
    UNROLL for (int m = 0; m < 4; m++) UNROLL for (int r = 0; r < C::rows; r++) UNROLL for (int i = 0; i < C::heads; i++) sums[m][r][i] = -0.0f;
    Softmax state = {0.0f, 0.0f, false};

    NO_UNROLL for (i32 c = 0; c < at.chunks; c++) {
        // addresses are computed anew in each round: they would take a third of the registers
        const u32 again = hidden(thread);
        w = again >> 5;
        l = again & 31u;
        const Rows2 next_rows = feed.rows();
        const Rows2 next = readable(next_rows);
        const bool live = any_lane(valid_a || valid_b);
        s.scale[w][l] = float_of_half(k_scale.a);
        s.scale[w][l + 32] = float_of_half(k_scale.b);
        async_wait<1>();
        wave_sync();

#if STRATA_CUDA
        const u8* tile = s.keys[w];
#else
        const u8* tile = nullptr;
#endif
        form.scores(l, w, tile, g.k, rows, s.q_scale, s.scale[w], s.part[w]);
        wave_sync();
        s.scale[w][folded(0, l)] = float_of_half(v_scale.a);
        s.scale[w][folded(0, l + 32)] = float_of_half(v_scale.b);
        k_scale = load_scales(g.k_scale, next, w);
#if STRATA_CUDA
        if (c + 1 < at.chunks) copy_rows<false>(l, s.keys[w], g.k, 64u * w + 16u * (l & 3u), next);
        async_commit();
#else
        u32 value[8][4];  // four cells of dimensions 4 (l % 16)..+3, for each four of this half's cells
        UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) {
            const i32 row = lane_get(i < 4 ? rows.a : rows.b, (16u * (i >> 1) + 8u * (l >> 4) + 4u * (i & 1) + j) & 31u);
            value[i][j] = *(const u32*)row_at(g.v, row, 64u * w + 4u * (l & 15u));
        }
#endif
        barrier_lds();

        softmax<G>(l, w, valid_a, valid_b, live, state, s.merge,
            [&](u32 head, u32 cell) { return whole_score<G>(s.part, head, cell); },
            [&](u32 head, u32 cell, f32 p) { s.p[head][folded(head, cell)] = p; });
        feed.look_up();
        async_wait<1>();
        barrier_lds();

        form.take_weights(l, s.p[0], s.scale[w]);

        // Weighted values. Tile m has dimensions 16 m + 2 n + r of the wave's in rows n + 8 r on NVIDIA, where a matrix load
        // gives pairs of them; dimensions 4 i + m in rows i on AMD.
#if !STRATA_CUDA
        UNROLL for (int i = 0; i < 8; i++) byte_transpose(value[i]);
#endif
        UNROLL for (int m = 0; m < 4; m++) {
            u32 a[C::steps][X::A];
#if STRATA_CUDA
            UNROLL for (int k = 0; k < 2; k++) load_values(l, s.values[w], m, k, a[k]);
#else
            UNROLL for (int k = 0; k < 4; k++) UNROLL for (int r = 0; r < 2; r++) {
                const u32 mine = value[2 * k + r][m];
#if STRATA_WMMA == 12
                a[k][r] = mine;
#else
                const u32 given = lane_xor<16>(mine);
                a[k][r] = l >> 4 ? given : mine;
                a[k][2 + r] = l >> 4 ? mine : given;
#endif
            }
#endif
            wave_sync();  // or the compiler would hold what it reads here for all tiles: registers are short
            form.products(a, [&](int r, int i, f32 acc) {
                const f32* merge = s.merge[C::sum_head(l, i)];
                sums[m][r][i] = fma_(sums[m][r][i], merge[0], acc * merge[1]);
            });
        }
        v_scale = load_scales(g.v_scale, next, w);
#if STRATA_CUDA
        wave_sync();
        if (c + 1 < at.chunks) copy_rows<true>(l, s.values[w], g.v, 64u * w + 16u * (l & 3u), next);
        async_commit();
#endif
        rows = next;
        valid_a = next_rows.a >= 0;
        valid_b = next_rows.b >= 0;
    }
    async_wait<0>();

    share_totals<G>(l, w, state, s.merge);
    UNROLL for (int i = 0; i < C::heads; i++) {
        const u32 head = C::sum_head(l, i);
        if ((i32)head >= g.group) continue;
        const f32 sum = state.started ? s.merge[head][0] : 1.0f;
        f32* out = g.out + (at.first_head + head) * HEAD_DIM + 64u * w;
#if STRATA_CUDA
        UNROLL for (int m = 0; m < 4; m++) {
            const F2 v = {div_(sums[m][0][i], sum), div_(sums[m][1][i], sum)};
            *(F2*)(out + 16 * m + 2u * (l >> 2)) = state.started ? v : F2{0.0f, 0.0f};
        }
#else
        UNROLL for (int r = 0; r < C::rows; r++) {
            const F4 v = {div_(sums[0][r][i], sum), div_(sums[1][r][i], sum), div_(sums[2][r][i], sum), div_(sums[3][r][i], sum)};
            *(F4*)(out + 4u * C::row(l, r)) = state.started ? v : F4{0.0f, 0.0f, 0.0f, 0.0f};
        }
#endif
    }
}

#if STRATA_CUDA && STRATA_SM != 800 && STRATA_SM != 900 && STRATA_SM != 1000
#define PROMPT_GROUPS 2  // what shared memory holds
#else
#define PROMPT_GROUPS 4
#endif
// With twelve heads sm_100 lacks two registers for four groups and one for three.
#if STRATA_CUDA && STRATA_SM == 1000
#define PROMPT_GROUPS_12 2
#else
#define PROMPT_GROUPS_12 PROMPT_GROUPS
#endif
#endif
