// Where a weight block lies after products/repack.rs. Eight neighbouring rows are a group. A group is stored step by step:
// step t holds block t of every chain (NUMERICS.md section 2) for its eight rows; chains differ in length by at most one
// block, so the last step has fewer. Within a step, pieces of 16 down to 1 bytes come one kind after the other, each
// [chain][row]: threads of neighbouring rows read neighbouring bytes, and nothing
// is padded but groups of blocks of an odd size.
#pragma once
#include "side/side.cuh"

#define GROUP_ROWS 8u

struct Place {
    const u8* tile;  // the step
    u32 count;       // blocks in the step
    u32 slot;        // this block among them
};
// A piece of a block; `before` counts the bytes of a block that come before it.
template <class T> DEVICE const u8* piece_at(const Place& p, u32 before) { return p.tile + before * p.count + p.slot * (u32)sizeof(T); }
template <class T> DEVICE T piece(const Place& p, u32 before) {
    const u8* at = piece_at<T>(p, before);
    if constexpr (sizeof(T) == 16) return load_once((const T*)at);
    else return *(const T*)at;
}

// Bytes of a group of rows. Blocks of an odd size leave eight behind, so that the next group's pieces of 16 bytes are aligned.
template <class F> DEVICE u32 group_bytes(u32 blocks) {
    const u32 bytes = GROUP_ROWS * blocks * F::BYTES;
    return F::BYTES % 2u ? (bytes + 15u) & ~15u : bytes;
}
// First block of chain c, and the chain of block s, where a row has `blocks` blocks.
template <u32 chains> DEVICE u32 chain_start(u32 c, u32 blocks) { return c * blocks / chains; }
template <u32 chains> DEVICE u32 chain_of(u32 s, u32 blocks) { return ((s + 1u) * chains - 1u) / blocks; }

// Block number `step` of chain c of a row.
template <class F> DEVICE Place place(const u8* matrix, u32 row, u32 blocks, u32 c, u32 step) {
    const u32 full = blocks / F::CHAINS;
    const u8* group = matrix + (u64)(row / GROUP_ROWS) * group_bytes<F>(blocks);
    const u32 r = row % GROUP_ROWS;
    const u8* tile = group + step * (F::CHAINS * GROUP_ROWS * F::BYTES);
    if (step < full) return Place{tile, F::CHAINS * GROUP_ROWS, c * GROUP_ROWS + r};
    // of the chains with one block more, as many lie before c as its start is late
    return Place{tile, blocks % F::CHAINS * GROUP_ROWS, (chain_start<F::CHAINS>(c, blocks) - c * full) * GROUP_ROWS + r};
}
// Block s of a row.
template <class F> DEVICE Place place_of(const u8* matrix, u32 row, u32 blocks, u32 s) {
    u32 c = chain_of<F::CHAINS>(s, blocks);
    return place<F>(matrix, row, blocks, c, s - chain_start<F::CHAINS>(c, blocks));
}
