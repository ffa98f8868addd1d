// Q4_K: 256 codes of four bits, in eight parts with a scale and a minimum each.
#pragma once
#include "products/formats/bits.cuh"
#include "products/formats/k_head.cuh"

struct Q4_K : Format {
    static constexpr u32 BYTES = 144, WIDTH = 256, PARTS = 8, CHAINS = 4;
    static constexpr int SUBS = 1;
    static constexpr bool MINIMA = true;
    typedef KHead Head;
    typedef U4 Raw;
    static __device__ inline Raw raw(const Place& p) { return piece<U4>(p, 128); }
    static __device__ inline const u8* raw_at(const Place& p) { return piece_at<Raw>(p, 128); }
    static __device__ inline Head opened(const Raw& r) { return k_head(r); }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U4>(p, 16u * part); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) { nibbles(q, w); }
    static __device__ inline i32 scale(const Head& h, int part, int) { return h.scale(part); }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int) { return h.scale4(j, q); }
    static __device__ inline i32 minimum4(const Head& h, int j, u32 q) { return h.minimum4(j, q); }
    static __device__ inline i32 minimum(const Head& h, int part) { return h.minimum(part); }
    static __device__ inline u32 minima(const Head& h, int i) { return h.minima[i]; }
    static __device__ inline void second_half(Head& h) { h.scales[0] = h.scales[1]; }
    static __device__ inline f32 dmin(const Head& h) { return h.least; }
};
