// MXFP4 and NVFP4: four-bit floats, here twice their values, which are integers, with a scale of eight bits for 32 or 16 of them.
#pragma once
#include "products/formats/bits.cuh"
#include "products/formats/format.cuh"

// Twice the values of 32 codes, from 16 bytes laid as in `nibbles`.
DEVICE void fp4_values(const U4& q, u32 (&w)[8]) {
    // 0 1 2 3 | 4 6 8 12 | and their negatives
    const u32 table[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
    const u32 v[4] = {q.x, q.y, q.z, q.w};
    UNROLL for (int m = 0; m < 4; m++) nibble_lookup16(table, v[m], w[m], w[4 + m]);
}

struct MXFP4 : Format {
    static constexpr u32 BYTES = 17, WIDTH = 32, PARTS = 1, CHAINS = 8;
    struct Head { f32 d; };
    struct Raw { u8 e; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u8>(p, 16)}; }
    // 2^(e - 128), of which the two smallest are subnormal
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_bits(r.e < 2u ? 0x00200000u << r.e : (r.e - 1u) << 23)}; }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int) { return piece<U4>(p, 0); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) { fp4_values(q, w); }
};
struct NVFP4 : Format {
    static constexpr u32 BYTES = 36, WIDTH = 64, PARTS = 2, CHAINS = 8;
    static constexpr int TERMS = 4;
    struct Head { u32 scales; };
    typedef u32 Raw;
    static __device__ inline Raw raw(const Place& p) { return piece<u32>(p, 32); }
    static __device__ inline Head opened(const Raw& r) { return Head{r}; }
    // Half a number of four exponent and three mantissa bits, bias 7, where 0x7f is 0. A float with these bits, subnormal ones
    // too, is less by the biases' difference alone.
    static __device__ inline f32 term(const Head& h, int i) {
        const u32 byte = h.scales >> 8 * i & 255u;
        return byte == 0x7fu ? 0.0f : float_of_bits((byte & 0x7fu) << 20) * 6.646139978924579e+35f;  // 2^119
    }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U4>(p, 16u * (u32)part); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) { fp4_values(q, w); }
};
