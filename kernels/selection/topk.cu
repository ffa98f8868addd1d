// Block top-k by one workgroup a query: scores[query][max_blocks] and step records to ids[query][cap], ascending.
#include "selection/topk.cuh"

template <int THREADS, int BITS, class Keys> DEVICE void topk_kernel(const f32* scores, const i32* steps, i32* ids, i32 max_blocks, i32 cap) {
    SHARED(u32, bins, [1 << BITS]);
    SHARED(u32, waves, [THREADS / 32]);
    SHARED(u32, found, [2]);
    TopkQuery q = topk_query(scores, steps, ids, max_blocks, cap, block_x());
    if (topk_trivial(q, thread_x(), THREADS)) return;
    Keys keys;
    topk_one<THREADS, BITS>(bins, waves, found, keys, q);
}

// Little memory and few threads: many queries at once, of few blocks.
KERNEL(256) qsa_topk_ref(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<256, 8, ReadKeys<STRATA_HIP ? 2 : 4>>(scores, steps, ids, max_blocks, cap);
}
// Any number of blocks. With four keys at once sm_100 lacks registers for two groups a multiprocessor.
#if STRATA_CUDA && STRATA_SM == 1000
#define WIDE_KEYS 3
#else
#define WIDE_KEYS 4
#endif
KERNEL(1024) qsa_topk_wide(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<1024, 11, ReadKeys<WIDE_KEYS>>(scores, steps, ids, max_blocks, cap);
}
// Up to 1,024 blocks for each key a thread holds.
KERNEL(1024) qsa_topk_reg2(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<1024, 11, HeldKeys<2>>(scores, steps, ids, max_blocks, cap);
}
KERNEL(1024) qsa_topk_reg9(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<1024, 11, HeldKeys<9>>(scores, steps, ids, max_blocks, cap);
}
KERNEL(1024) qsa_topk_reg17(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<1024, 11, HeldKeys<17>>(scores, steps, ids, max_blocks, cap);
}
KERNEL(1024) qsa_topk_reg33(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<1024, 11, HeldKeys<33>>(scores, steps, ids, max_blocks, cap);
}
#if STRATA_HIP
// 1,024 threads have 128 registers each of a small register file, too few for 66 keys: there they are read anew.
#if STRATA_SMALL_FILE
typedef ReadKeys<WIDE_KEYS> Keys66;
#else
typedef HeldKeys<66> Keys66;
#endif
KERNEL(1024) qsa_topk_reg66(const f32* RESTRICT scores, const i32* RESTRICT steps, i32* RESTRICT ids, i32 max_blocks, i32 cap) {
    topk_kernel<1024, 11, Keys66>(scores, steps, ids, max_blocks, cap);
}
#endif
