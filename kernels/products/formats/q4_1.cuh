// Q4_1: 32 codes of four bits, a scale and an offset, which is a minimum of 1 with the scale -m.
#pragma once
#include "products/formats/bits.cuh"
#include "products/formats/format.cuh"

// Scale and offset of Q4_1 and Q5_1, two halves.
struct ScaleOffset {
    f32 d, least;
};
DEVICE ScaleOffset scale_offset(u32 halves) { return ScaleOffset{float_of_half((u16)halves), -float_of_half((u16)(halves >> 16))}; }

struct Q4_1 : Format {
    static constexpr u32 BYTES = 20, WIDTH = 32, PARTS = 1, CHAINS = 8;
    static constexpr bool MINIMA = true;
    typedef ScaleOffset Head;
    typedef u32 Raw;
    static __device__ inline Raw raw(const Place& p) { return piece<u32>(p, 16); }
    static __device__ inline Head opened(const Raw& r) { return scale_offset(r); }
    static __device__ inline f32 dmin(const Head& h) { return h.least; }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int) { return piece<U4>(p, 0); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) { nibbles(q, w); }
};
