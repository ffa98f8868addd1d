// What every decode chunk kernel does: a workgroup takes one chunk of 64 selected cells of one query and one KV head
// (grid: chunks, KV heads, queries) and stores the chunk's largest scores, sums of weights and weighted values.
#pragma once
#include "attention/common.cuh"

#define CHUNK_ARGS                                                                                                          \
    const f32 *RESTRICT q, const i32 *RESTRICT ids, const i32 *RESTRICT steps, const i32 *RESTRICT table, const u8 *RESTRICT k, \
        const u16 *RESTRICT ks, const u8 *RESTRICT v, const u16 *RESTRICT vs, f32 *RESTRICT m, f32 *RESTRICT l,             \
        f32 *RESTRICT acc, i32 cap, i32 group, i32 table_stride
#define CHUNK_PASS q, ids, steps, table, k, ks, v, vs, m, l, acc, cap, group, table_stride

// Where a workgroup's results go: first head of its group in m and l; times 256 in acc.
DEVICE u64 chunk_slot(i32 group) { return (((u64)block_z() * grid_y() + block_y()) * grid_x() + block_x()) * (u32)group; }
// Selected cells of this chunk; none marks it as dead. `steps` has the width of query i at 4 i + 3.
DEVICE u32 chunk_cells(const i32* RESTRICT steps, i32 cap) {
    i32 width = smaller(steps[4u * block_z() + 3u], cap), first = (i32)(block_x() * CHUNK);
    return width <= first ? 0u : (u32)smaller(width - first, (i32)CHUNK);
}
DEVICE void dead_chunk(f32* RESTRICT m, f32* RESTRICT l, i32 group) {
    u64 slot = chunk_slot(group);
    if ((i32)thread_x() < group) {
        m[slot + thread_x()] = LOWEST;
        l[slot + thread_x()] = 0.0f;
    }
}
// Rows of the chunk's cells; -1 for cells that are masked or past the selection.
DEVICE void chunk_rows(const i32* RESTRICT ids, const i32* RESTRICT table, i32 cap, i32 table_stride, u32 cells, i32* rows) {
    u32 t = thread_x();
    if (t >= CHUNK) return;
    i32 row = -1;
    if (t < cells) {
        i32 cell = ids[(u64)block_z() * (u32)cap + block_x() * CHUNK + t];
        row = physical_row(table + (u64)block_z() * (u32)table_stride, cell, block_y(), grid_y());
    }
    rows[t] = row;
}
// Eight values of the head that wave `w` of WAVES takes in a round; past the group the last head again.
template <u32 WAVES> DEVICE void load_query(const f32* RESTRICT q, i32 group, u32 round, f32 (&x)[8]) {
    u32 h = smaller(wave() + WAVES * round, (u32)group - 1u);
    const F4* at = (const F4*)(q + (((u64)block_z() * grid_y() + block_y()) * (u32)group + h) * HEAD_DIM + 8u * lane());
    F4 a = at[0], b = at[1];
    x[0] = a.x;
    x[1] = a.y;
    x[2] = a.z;
    x[3] = a.w;
    x[4] = b.x;
    x[5] = b.y;
    x[6] = b.z;
    x[7] = b.w;
}
DEVICE void store_softmax(f32* RESTRICT m, f32* RESTRICT l, i32 group, u32 head, u32 j, Softmax s) {
    if (j == 0 && (i32)head < group) {
        u64 slot = chunk_slot(group);
        m[slot + head] = s.m;
        l[slot + head] = s.l;
    }
}
