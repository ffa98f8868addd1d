// Q2_0: 64 codes of two bits less 1 and a scale, two terms. Value i of 16 is at bits 4 (i % 8) + 2 (i / 8) of a word, so that
// nibbles name them.
#pragma once
#include "products/formats/format.cuh"

struct Q2_0 : Format {
    static constexpr u32 BYTES = 18, WIDTH = 64, PARTS = 2, CHAINS = 8;
    static constexpr int TERMS = 2;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 16)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d)}; }
    typedef U2 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U2>(p, 8u * (u32)part); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) {
        UNROLL for (int k = 0; k < 4; k++)  // -1, 0, 1, 2
            nibble_lookup8(0x020100ffu, 0u, (k < 2 ? q.x : q.y) >> 2 * (k & 1) & 0x33333333u, w[2 * k], w[2 * k + 1]);
    }
};
