// Exact block scorers, one wave a block or a set of blocks. Scores of blocks 0..n_bid of each query;
// what a query scores is read from its step record, so that a captured launch serves later steps.
//
// The kernels of decode compute with some keys while as many are on their way: rows<N> and slots with four a wave, multi with
// eight. 32 dots are reduced together: 31 exchanges instead of 160. That takes more registers than the published kernels, which hold
// one key (kernels/resources has both). On sm_90 they are held to what 2 (multi, other rows), 3 (rows<2>, rows<4>) or 4 (rows<1>, slots)
// workgroups a multiprocessor leave: 128, 80 and 64. Nothing spills.
#include "selection/scores.cuh"

// One wave a (query, block): grid (blocks / 8, queries).
KERNEL(256) qsa_scores_warp(const f32* RESTRICT pooled, const f32* RESTRICT dead, const f32* RESTRICT q, const StepRecord* RESTRICT records,
                            f32* RESTRICT scores, i32 max_blocks) {
    u32 row = block_y();
    i32 n_bid = records[row].n_bid, n_kv = records[row].n_kv, first = (i32)block_x() * 8;
    if (first > n_bid) return;
    i32 block = first + (i32)wave();
    const f32* key = block < n_bid ? pooled + (u64)block * INDEX_DIM : dead;
    f32 s = score_by_wave(load_f4(key + 4 * lane()), q + (u64)row * QUERY_DIM);
    if (block == n_bid && (n_kv & 3)) s = s + TAIL_BONUS;
    if (lane() == 0 && block <= n_bid && block < max_blocks) scores[(u64)row * (u32)max_blocks + block] = s;
}

// One wave a query: block n_bid alone.
KERNEL(256) qsa_scores_tail(const f32* RESTRICT dead, const f32* RESTRICT q, const StepRecord* RESTRICT records, f32* RESTRICT scores,
                            i32 max_blocks, i32 queries) {
    u32 row = block_x() * 8 + wave(), mine = row < (u32)queries ? row : (u32)queries - 1;
    i32 n_bid = records[mine].n_bid;
    f32 s = tail_by_wave(dead, q + (u64)mine * QUERY_DIM, records[mine].n_kv);
    if (lane() == 0 && row < (u32)queries && n_bid < max_blocks) scores[(u64)mine * (u32)max_blocks + n_bid] = s;
}

// A set: eight keys that one wave holds, 16 bytes of each a lane. Slot 4a + s of a lane holds key 4a + (s ^ turn), where the
// turn is the lane's bits 16 and 8: each 128-byte line is read whole. Keys from `end` on repeat the last one.
DEVICE void load_set(F4 (&set)[8], const f32* RESTRICT pooled, i32 first, i32 end) {
    u32 turn = turn_of<LEVEL_16, LEVEL_8>();
    if (first + 8 <= end) {
        const f32* p = pooled + (u64)first * INDEX_DIM + 4 * lane();
        UNROLL for (u32 s = 0; s < 8; s++) set[s] = load_f4_once(p + ((s & 4u) + ((s & 3u) ^ turn)) * INDEX_DIM);
    } else {
        UNROLL for (u32 s = 0; s < 8; s++) {
            i32 b = first + (i32)((s & 4u) + ((s & 3u) ^ turn));
            b = b < end ? b : end - 1;
            set[s] = load_f4_once(pooled + (u64)b * INDEX_DIM + 4 * lane());
        }
    }
}
// Slices of a query's heads for one lane: slot h holds head h ^ (the lane's bits 4 and 2).
DEVICE void load_heads(F4 (&heads)[4], const f32* query) {
    u32 turn = turn_of<4, 2>();
    UNROLL for (u32 h = 0; h < 4; h++) heads[h] = load_f4(query + (h ^ turn) * INDEX_DIM + 4 * lane());
}
// The sum over heads, in their order; right in lanes whose bits 4 and 2 are clear.
DEVICE f32 sum_heads(f32 d) {
    f32 r0 = relu(d), r1 = lane_xor<2>(r0), r2 = lane_xor<4>(r0), r3 = lane_xor<4>(r1);
    return ((r0 + r1) + r2) + r3;
}
// Scores of a set for one query: 32 dots in 31 exchanges, then the heads in order. Right in lanes whose bits 4 and 2 are
// clear: there it is key `key_of_lane` of the set.
DEVICE f32 score_set(const F4 (&set)[8], const F4 (&heads)[4]) {
    f32 half[2];
    UNROLL for (int a = 0; a < 2; a++) {
        f32 v[4];
        UNROLL for (int h = 0; h < 4; h++) {
            f32 x = halve<LEVEL_16>(chain(set[4 * a], heads[h]), chain(set[4 * a + 2], heads[h]));
            f32 y = halve<LEVEL_16>(chain(set[4 * a + 1], heads[h]), chain(set[4 * a + 3], heads[h]));
            v[h] = halve<LEVEL_8>(x, y);
        }
        half[a] = halve<2>(halve<4>(v[0], v[2]), halve<4>(v[1], v[3]));
    }
    bool odd = lane() & 1u;
    f32 d = halve<1>(odd ? half[1] : half[0], odd ? half[0] : half[1]);
    return sum_heads(d);
}
DEVICE u32 key_of_lane() { return (lane() & 1u) * 4 + turn_of<LEVEL_16, LEVEL_8>(); }
DEVICE bool lane_has_key() { return (lane() & 6u) == 0u; }

// Copies `queries` queries into shared memory.
DEVICE void stage_queries(f32* stage, const f32* RESTRICT q, u32 queries) {
    for (u32 i = thread_x(); i < queries * (QUERY_DIM / 4); i += 256) ((F4*)stage)[i] = ((const F4*)q)[i];
}
// The last blocks of up to eight queries, a wave each.
DEVICE void tails(const f32* RESTRICT dead, const f32* query, const StepRecord* RESTRICT records, f32* RESTRICT scores, i32 max_blocks, u32 queries) {
    u32 row = wave() < queries ? wave() : queries - 1;
    i32 n_bid = records[row].n_bid;
    f32 s = tail_by_wave(dead, query + row * QUERY_DIM, records[row].n_kv);
    if (lane() == 0 && wave() < queries && n_bid < max_blocks) scores[(u64)row * (u32)max_blocks + n_bid] = s;
}

// Scores of a set for all queries.
DEVICE void score_all(const F4 (&set)[8], const f32* stage, const i32* ends, u32 queries, i32 first, f32* RESTRICT scores, i32 max_blocks) {
    i32 block = first + (i32)key_of_lane();
    NO_UNROLL for (u32 i = 0; i < queries; i++) {
        F4 heads[4];
        load_heads(heads, stage + i * QUERY_DIM);
        f32 s = score_set(set, heads);
        if (lane_has_key() && block < ends[i]) scores[(u64)i * (u32)max_blocks + block] = s;
    }
}
// Up to eight queries, each key read once for all of them; queries stay in shared memory. A fixed grid strides over steps
// of eight sets, a wave computes with one set while its next one is on its way; the step after the last is the tails'.
KERNEL_OCC(256, 2) qsa_scores_multi(const f32* RESTRICT pooled, const f32* RESTRICT dead, const f32* RESTRICT q,
                                    const StepRecord* RESTRICT records, f32* RESTRICT scores, i32 max_blocks, i32 queries) {
    SHARED(f32, stage, [8 * QUERY_DIM]);
    SHARED(i32, ends, [8]);
    u32 n = (u32)queries;
    i32 top = 0;
    UNROLL for (u32 i = 0; i < 8; i++) top = larger(top, records[i < n ? i : n - 1].n_bid);
    i32 steps = (top + 63) / 64, step = (i32)block_x(), stride = (i32)grid_x();
    if (step > steps) return;
    F4 a[8], b[8];
    // the first keys are on their way while the queries are staged
    i32 first = step * 64 + (i32)wave() * 8, ahead = stride * 64;
    if (step < steps) load_set(a, pooled, first, top);
    if (step + stride < steps) load_set(b, pooled, first + ahead, top);
    if (thread_x() < n) ends[thread_x()] = smaller(records[thread_x()].n_bid, max_blocks);
    stage_queries(stage, q, n);
    barrier();
    while (step < steps) {
        score_all(a, stage, ends, n, first, scores, max_blocks);
        if (step + 2 * stride < steps) load_set(a, pooled, first + 2 * ahead, top);
        step += stride;
        first += ahead;
        if (step >= steps) break;
        score_all(b, stage, ends, n, first, scores, max_blocks);
        if (step + 2 * stride < steps) load_set(b, pooled, first + 2 * ahead, top);
        step += stride;
        first += ahead;
    }
    if (step == steps) tails(dead, stage, records, scores, max_blocks, n);
}

// Four keys from `first`, a multiple of 4, that one wave holds, 16 bytes of each a lane: slot s of a lane holds key s ^ turn,
// as in a set; keys from `end` on repeat the last one. `keys` is the lane's 16 bytes of key 0. `TWICE`: another wave of the
// workgroup reads them too.
template <bool TWICE> DEVICE void load_quad(F4 (&quad)[4], const f32* RESTRICT keys, u32 turn, i32 first, i32 end) {
    UNROLL for (u32 s = 0; s < 4; s++) {
        const f32* key = keys + (u64)smaller(((u32)first | turn) ^ s, (u32)end - 1) * INDEX_DIM;
        quad[s] = TWICE ? load_f4(key) : load_f4_once(key);
    }
}
// The tree down to level 2 for a quad and a query's heads: 16 dots, of which a lane keeps one.
DEVICE f32 halve_quad(const F4 (&quad)[4], const F4 (&heads)[4]) {
    f32 v[4];
    UNROLL for (int h = 0; h < 4; h++) {
        f32 x = halve<LEVEL_16>(chain(quad[0], heads[h]), chain(quad[2], heads[h]));
        f32 y = halve<LEVEL_16>(chain(quad[1], heads[h]), chain(quad[3], heads[h]));
        v[h] = halve<LEVEL_8>(x, y);
    }
    return halve<2>(halve<4>(v[0], v[2]), halve<4>(v[1], v[3]));
}

// The same for a number of queries known to the compiler; queries stay in registers, and a wave computes with four keys
// while the next four are on their way. Queries go by twos: a quad and two queries are 32 dots, and level 1 of the tree
// leaves the one of its number's parity in each lane. Four queries and more are dealt to two waves, which read the same keys.
template <int N> struct Rows {
    static constexpr int PARTS = N > 3 ? 2 : 1, MINE = (N + PARTS - 1) / PARTS, PAIRS = (MINE + 1) / 2, KEYS = 32 / PARTS;
    F4 heads[MINE][4];
    i32 limit[PAIRS];  // blocks that a lane stores of its query of a pair
    f32* out;

    __device__ inline void score(const F4 (&quad)[4], i32 block, i32 max_blocks) const {
        f32 s[PAIRS];
        UNROLL for (int p = 0; p < PAIRS; p++) {
            f32 d = halve_quad(quad, heads[2 * p]);
            if (2 * p + 1 < MINE) d = halve<1>(d, halve_quad(quad, heads[2 * p + 1 < MINE ? 2 * p + 1 : 0]));
            else d = d + lane_xor<1>(d);
            s[p] = sum_heads(d);
        }
        UNROLL for (int p = 0; p < PAIRS; p++)
            if (block < limit[p]) out[(u64)(u32)(2 * p) * (u32)max_blocks + block] = s[p];
    }
};
template <int N> DEVICE void score_rows(const f32* RESTRICT pooled, const f32* RESTRICT dead, const f32* RESTRICT q,
                                        const StepRecord* RESTRICT records, f32* RESTRICT scores, i32 max_blocks, f32* stage) {
    using R = Rows<N>;
    constexpr bool TWICE = R::PARTS > 1;
    i32 top = 0;
    UNROLL for (int i = 0; i < N; i++) top = larger(top, records[i].n_bid);
    i32 steps = (top + R::KEYS - 1) / R::KEYS, step = (i32)block_x(), stride = (i32)grid_x();
    if (step > steps) return;
    u32 place = wave() & (8 / R::PARTS - 1), from = smaller(wave() / (8u / R::PARTS) * R::MINE, (u32)(N - R::MINE));
    F4 a[4], b[4];
    const f32* keys = pooled + 4 * lane();
    u32 turn = hidden(turn_of<LEVEL_16, LEVEL_8>());
    i32 first = step * R::KEYS + (i32)place * 4, ahead = stride * R::KEYS;
    if (step < steps) load_quad<TWICE>(a, keys, turn, first, top);
    if (step + stride < steps) load_quad<TWICE>(b, keys, turn, first + ahead, top);
    stage_queries(stage, q, N);
    barrier();
    R rows;
    u32 odd = lane() & 1u;
    UNROLL for (int i = 0; i < R::MINE; i++) {
        bool paired = (i | 1) < R::MINE;
        load_heads(rows.heads[i], stage + (from + (paired ? (u32)i ^ odd : (u32)i)) * QUERY_DIM);
    }
    UNROLL for (int p = 0; p < R::PAIRS; p++) {
        bool paired = 2 * p + 1 < R::MINE;
        i32 n_bid = smaller(records[from + 2 * p + (paired ? odd : 0u)].n_bid, max_blocks);
        rows.limit[p] = lane_has_key() && (paired || odd == 0u) ? n_bid : 0;
    }
    rows.out = scores + (u64)(from + odd) * (u32)max_blocks;
    while (step < steps) {
        rows.score(a, first + (i32)turn, max_blocks);
        if (step + 2 * stride < steps) load_quad<TWICE>(a, keys, turn, first + 2 * ahead, top);
        step += stride;
        first += ahead;
        if (step >= steps) break;
        rows.score(b, first + (i32)turn, max_blocks);
        if (step + 2 * stride < steps) load_quad<TWICE>(b, keys, turn, first + 2 * ahead, top);
        step += stride;
        first += ahead;
    }
    if (step == steps) tails(dead, stage, records, scores, max_blocks, N);
}
#define ROWS(N, GROUPS)                                                                                                              \
    KERNEL_OCC(256, GROUPS) qsa_scores_rows##N(const f32* RESTRICT pooled, const f32* RESTRICT dead, const f32* RESTRICT q,         \
                                               const StepRecord* RESTRICT records, f32* RESTRICT scores, i32 max_blocks) {           \
        SHARED(f32, stage, [N * QUERY_DIM]);                                                                                          \
        score_rows<N>(pooled, dead, q, records, scores, max_blocks, stage);                                                           \
    }
ROWS(1, 4)
ROWS(2, 3)
ROWS(3, 2)
ROWS(4, 3)
ROWS(5, 2)
ROWS(6, 2)
ROWS(7, 2)
ROWS(8, 2)
#undef ROWS

// Queries of different sequences: query i scores the keys at pooled[i] (addresses) with dead[i]. Grid (any, queries).
KERNEL_OCC(256, 4) qsa_scores_slots(const u64* RESTRICT pooled, const u64* RESTRICT dead, const f32* RESTRICT q,
                                    const StepRecord* RESTRICT records, f32* RESTRICT scores, i32 max_blocks) {
    SHARED(f32, stage, [QUERY_DIM]);
    u32 row = block_y();
    score_rows<1>((const f32*)pooled[row], (const f32*)dead[row], q + (u64)row * QUERY_DIM, records + row,
                  scores + (u64)row * (u32)max_blocks, max_blocks, stage);
}
