// Prompt attention over fp16 and q4_0 caches in the defined f32 order (NUMERICS.md section 3): the bits of decode.
//
// A workgroup of four waves takes one query and KV head. Scores: a wave takes 16 of a chunk's 64 cells, a lane eight
// dimensions of every head; the sums over lanes go by halving exchanges, which add the pairs of the xor tree. Values: a
// wave takes 64 dimensions of all cells.
#include "attention/prompt_values.cuh"

template <int G> struct FloatShared {
    f32 q[G][2][32][4];  // [head][half of a lane's eight][lane]
    f32 score[G][CHUNK_CELLS];
    f32 p[CHUNK_CELLS * G];
    f32 merge[16][2];
};

// A lane's eight values of a key: 8 l and the next.
struct HalfKeys {
    typedef U4 Raw;
    static __device__ inline Raw load(u32 l, const u8* rows, i32 row) { return *(const U4*)byte_row<512>(rows, row, 16u * l); }
    static __device__ inline void decode(u32, Raw v, f32 (&x)[8]) {
        const u32 pairs[4] = {v.x, v.y, v.z, v.w};
        UNROLL for (int i = 0; i < 4; i++) {
            x[2 * i] = float_of_half((u16)pairs[i]);
            x[2 * i + 1] = float_of_half((u16)(pairs[i] >> 16));
        }
    }
    static constexpr bool rotated = false;
};
struct Q4Keys {
    struct Raw { u16 codes[4], scale; };
    static __device__ inline Raw load(u32 l, const u8* rows, i32 row) {
        const u8* block = byte_row<Q4_ROW>(rows, row, 18u * (l >> 2));
        const u16* codes = (const u16*)(block + (2u + 8u * (l & 1u)));
        return Raw{{codes[0], codes[1], codes[2], codes[3]}, *(const u16*)block};
    }
    static __device__ inline void decode(u32 l, Raw v, f32 (&x)[8]) {
        const f32 scale = float_of_half(v.scale);
        const u32 shift = l << 1 & 4u;  // lanes 2 and 3 of a block's four have the high halves
        UNROLL for (int i = 0; i < 4; i++) {
            const u32 codes = (u32)v.codes[i] >> shift;
            x[2 * i] = float_of_int((i32)(codes & 15u) - 8) * scale;
            x[2 * i + 1] = float_of_int((i32)(codes >> 8 & 15u) - 8) * scale;
        }
    }
    static constexpr bool rotated = true;
};

// One level of the tree over lanes: a lane keeps the half of the `n` sums that its bit chooses.
template <int n, int mask> DEVICE void halve(u32 l, f32 (&v)[16]) {
    const bool upper = l & (u32)mask;
    UNROLL for (int i = 0; i < n / 2; i++) {
        const f32 given = lane_xor<mask>(upper ? v[i] : v[i + n / 2]);
        v[i] = (upper ? v[i + n / 2] : v[i]) + given;
    }
}
// Sums of 16 (G > 8) or 8 values over the wave: lane l ends with that of value l >> 1 (l >> 2).
template <int G> DEVICE f32 head_sums(u32 l, f32 (&v)[16]) {
    if constexpr (G > 8) {
        halve<16, 16>(l, v);
        halve<8, 8>(l, v);
        halve<4, 4>(l, v);
        halve<2, 2>(l, v);
    } else {
        halve<8, 16>(l, v);
        halve<4, 8>(l, v);
        halve<2, 4>(l, v);
        v[0] = v[0] + lane_xor<2>(v[0]);
    }
    return v[0] + lane_xor<1>(v[0]);
}

template <int G, class Keys, class Values>
DEVICE void prompt_float(const PromptArgs<u8, u8> g) {
    SHARED(FloatShared<G>, shared, [1]);
    FloatShared<G>& s = shared[0];
    const u32 thread = thread_x();
    u32 w = thread >> 5, l = thread & 31u;
    const PromptQuery at = prompt_query(g);
    CellFeed feed;
    feed.start(g, at);
    for (u32 h = wave(); h < (u32)G; h += 4) {
        f32 x[8] = {};
        if ((i32)h < g.group) {
            const F4* from = (const F4*)(g.q + (at.first_head + h) * HEAD_DIM + 8u * l);
            const F4 a = from[0], b = from[1];
            x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
        }
        if (Keys::rotated) hadamard_wave(l, x);
        *(F4*)s.q[h][0][l] = F4{x[0], x[1], x[2], x[3]};
        *(F4*)s.q[h][1][l] = F4{x[4], x[5], x[6], x[7]};
    }
    barrier_lds();
    F2 sums[G];
    UNROLL for (int h = 0; h < G; h++) sums[h] = F2{-0.0f, -0.0f};
    Softmax state = {0.0f, 0.0f, false};

    NO_UNROLL for (i32 c = 0; c < at.chunks; c++) {
        // what is read from shared memory here stays in registers for this chunk only
        const u32 again = hidden(thread);
        w = again >> 5;
        l = again & 31u;
        const Rows2 found = feed.rows();
        const bool valid_a = found.a >= 0, valid_b = found.b >= 0;
        const u32 live_a = ballot(valid_a), live_b = ballot(valid_b);
        const Rows2 rows = {larger(found.a, 0), larger(found.b, 0)};  // a masked cell reads row 0
        {
            f32 query[G][8];
            UNROLL for (int h = 0; h < G; h++) UNROLL for (int half = 0; half < 2; half++) {
                const F4 x = *(const F4*)s.q[h][half][l];
                query[h][4 * half] = x.x;
                query[h][4 * half + 1] = x.y;
                query[h][4 * half + 2] = x.z;
                query[h][4 * half + 3] = x.w;
            }
            const i32 mine = w < 2u ? rows.a : rows.b;
            const u32 first = 16u * (w & 1u);
            typename Keys::Raw next[2] = {Keys::load(l, g.k, lane_get(mine, first)), Keys::load(l, g.k, lane_get(mine, first + 1u))};
            NO_UNROLL for (u32 i = 0; i < 16; i += 2) {
                f32 key[2][8];
                UNROLL for (u32 j = 0; j < 2; j++) Keys::decode(l, next[j], key[j]);
                UNROLL for (u32 j = 0; j < 2; j++) next[j] = Keys::load(l, g.k, lane_get(mine, first + (i + 2u + j & 15u)));
                UNROLL for (u32 j = 0; j < 2; j++) {
                    f32 dots[16] = {};
                    UNROLL for (int h = 0; h < G; h++) {
                        f32 d = key[j][0] * query[h][0];
                        UNROLL for (int e = 1; e < 8; e++) d = fma_(key[j][e], query[h][e], d);
                        dots[h] = d;
                    }
                    const f32 sum = head_sums<G>(l, dots);
                    const u32 head = G > 8 ? l >> 1 : l >> 2;
                    if (head < (u32)G) s.score[head][16u * w + i + j] = sum * 0.0625f;
                }
            }
        }
        feed.look_up();
        barrier_lds();
        softmax<G>(l, w, valid_a, valid_b, (live_a | live_b) != 0u, state, s.merge,
            [&](u32 head, u32 cell) { return s.score[head][cell]; },
            [&](u32 head, u32 cell, f32 p) { s.p[cell * G + head] = p; });
        barrier_lds();
        merge_values<G, Values>(l, w, g.v, rows, (u64)live_b << 32 | live_a, s.p, s.merge, sums);
    }
    share_totals<G>(l, w, state, s.merge);
    finish_values<G, Values>(l, w, sums, s.merge, state.started, s.q[0][0][0], g.out + at.first_head * HEAD_DIM, g.group);
}

#define PROMPT_FLOAT(name, G, Keys, Values, groups, waves) \
    KERNEL_HELD(128, groups, waves) name(PROMPT_PARAMETERS(u8, u8)) { prompt_float<G, Keys, Values>(PROMPT_ARGUMENTS(u8, u8)); }
PROMPT_FLOAT(prompt_f16_g8, 8, HalfKeys, HalfValues, 3, 5)
PROMPT_FLOAT(prompt_f16_g12, 12, HalfKeys, HalfValues, 3, 5)
PROMPT_FLOAT(prompt_f16_g16, 16, HalfKeys, HalfValues, 2, 4)
PROMPT_FLOAT(prompt_q4_g8, 8, Q4Keys, Q4Values, 3, 5)
PROMPT_FLOAT(prompt_q4_g12, 12, Q4Keys, Q4Values, 3, 5)
PROMPT_FLOAT(prompt_q4_g16, 16, Q4Keys, Q4Values, 2, 4)
