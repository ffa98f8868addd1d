// Where a thread reads the weights of its row: the walk of a row's blocks in order, without a division.
#pragma once
#include "products/formats/layout.cuh"

template <class F> struct Source {
    static constexpr u32 CHAINS = F::CHAINS, STEP_ROWS = CHAINS * GROUP_ROWS;
    u32 blocks;            // of a row
    u32 c, s, start, end;  // chain c is blocks start..end, and block s among them
    bool ended;            // the walk is beyond the last block, which stands in

    __device__ inline explicit Source(u32 n) {
        blocks = n;
        c = 0, start = 0, end = chain_start<CHAINS>(1u, n);
        go_to(0);
    }
    // Later blocks only.
    __device__ inline void go_to(u32 to) {
        ended = to >= blocks;
        s = smaller(to, blocks - 1u);
        while (s >= end) {
            c++;
            start = end, end = chain_start<CHAINS>(c + 1u, blocks);
        }
    }
    __device__ inline Place place(const u8* matrix, u32 row) const { return place_at(matrix, row, c, s - start, start); }
    // The block after this one.
    __device__ inline Place next(const u8* matrix, u32 row) const {
        u32 chain = c, first = start;
        for (u32 last = end; s + 1u >= last; last = chain_start<CHAINS>(chain + 1u, blocks)) chain++, first = last;
        return place_at(matrix, row, chain, s + 1u - first, first);
    }

    // As in products/formats/layout.cuh, of a chain that starts at block `first`.
    __device__ inline Place place_at(const u8* matrix, u32 row, u32 chain, u32 step, u32 first) const {
        const u32 full = blocks / CHAINS, r = row % GROUP_ROWS;
        const u8* tile = matrix + (u64)(row / GROUP_ROWS) * group_bytes<F>(blocks) + step * (STEP_ROWS * F::BYTES);
        if (step < full) return Place{tile, STEP_ROWS, chain * GROUP_ROWS + r};
        return Place{tile, blocks % CHAINS * GROUP_ROWS, (first - chain * full) * GROUP_ROWS + r};
    }
};
