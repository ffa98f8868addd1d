// Prompt attention over k8v4 caches: int8 keys by integer digits on matrix instructions as in prompt_int8.cu, q4_0 values
// in the defined f32 order as in prompt_float.cu.
#include "attention/prompt_keys.cuh"
#include "attention/prompt_values.cuh"

#if STRATA_MATRIX
template <int G> struct MixedShared {
#if STRATA_CUDA
    u8 keys[4][4096];  // [wave][cell][64]
#endif
    f32 part[4][G * 68];  // [group][head][cell]; first the digits of the query, last the rotated output
    f32 p[CHUNK_CELLS * G];
    f32 scale[4][CHUNK_CELLS];
    f32 merge[16][2];
    f32 q_scale[16];
};

template <int G> DEVICE void prompt_k8v4(const PromptArgs<i8, u8> g) {
    typedef DigitColumns<G> C;
    SHARED(MixedShared<G>, shared, [1]);
    MixedShared<G>& s = shared[0];
    const u32 thread = thread_x();
    u32 w = thread >> 5, l = thread & 31u;
    const PromptQuery at = prompt_query(g);
    CellFeed feed;
    feed.start(g, at);
    Rows2 found = feed.rows(), rows = readable(found);
    feed.look_up();
    Half2 k_scale = load_scales(g.k_scale, rows, w);
#if STRATA_CUDA
    copy_rows<false>(l, s.keys[w], g.k, 64u * w + 16u * (l & 3u), rows);
#endif
    async_commit();
    u32 q_digits[C::tiles][C::steps][MatrixS8::B];
    u8* stage = (u8*)s.part;
    stage_query<G>(g.q + at.first_head * HEAD_DIM, g.group, stage, s.q_scale);
    barrier_lds();
    query_digits<G>(l, w, stage, q_digits);
    barrier_lds();
    F2 sums[G];
    UNROLL for (int h = 0; h < G; h++) sums[h] = F2{-0.0f, -0.0f};
    Softmax state = {0.0f, 0.0f, false};

    NO_UNROLL for (i32 c = 0; c < at.chunks; c++) {
        // addresses are computed anew in each round: they would take many registers
        const u32 again = hidden(thread);
        w = again >> 5;
        l = again & 31u;
        const Rows2 next_found = feed.rows(), next = readable(next_found);
        const bool valid_a = found.a >= 0, valid_b = found.b >= 0;
        const u32 live_a = ballot(valid_a), live_b = ballot(valid_b);
        s.scale[w][l] = float_of_half(k_scale.a);
        s.scale[w][l + 32] = float_of_half(k_scale.b);
        async_wait<0>();
        wave_sync();
#if STRATA_CUDA
        const u8* tile = s.keys[w];
#else
        const u8* tile = nullptr;
#endif
        key_scores<G>(l, w, tile, g.k, rows, q_digits, s.q_scale, s.scale[w], s.part[w]);
        k_scale = load_scales(g.k_scale, next, w);
        wave_sync();
#if STRATA_CUDA
        if (c + 1 < at.chunks) copy_rows<false>(l, s.keys[w], g.k, 64u * w + 16u * (l & 3u), next);
#endif
        async_commit();
        feed.look_up();
        barrier_lds();
        softmax<G>(l, w, valid_a, valid_b, (live_a | live_b) != 0u, state, s.merge,
            [&](u32 head, u32 cell) { return whole_score<G>(s.part, head, cell); },
            [&](u32 head, u32 cell, f32 p) { s.p[cell * G + head] = p; });
        barrier_lds();
        merge_values<G, Q4Values>(l, w, g.v, rows, (u64)live_b << 32 | live_a, s.p, s.merge, sums);
        found = next_found;
        rows = next;
    }
    async_wait<0>();
    share_totals<G>(l, w, state, s.merge);
    finish_values<G, Q4Values>(l, w, sums, s.merge, state.started, s.part[0], g.out + at.first_head * HEAD_DIM, g.group);
}

#define PROMPT_K8V4(G, groups) \
    KERNEL_HELD(128, groups, 5) prompt_k8v4_g##G(PROMPT_PARAMETERS(i8, u8)) { prompt_k8v4<G>(PROMPT_ARGUMENTS(i8, u8)); }
PROMPT_K8V4(8, 3)
PROMPT_K8V4(12, 3)
PROMPT_K8V4(16, 2)
#endif
