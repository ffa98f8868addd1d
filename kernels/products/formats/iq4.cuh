// IQ4_NL and IQ4_XS: four bits name one of sixteen values.
#pragma once
#include "products/formats/bits.cuh"
#include "products/formats/format.cuh"

// Values of 32 codes, from 16 bytes laid as in `nibbles`.
DEVICE void iq4_values(const U4& q, u32 (&w)[8]) {
    // -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113
    const u32 table[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    const u32 v[4] = {q.x, q.y, q.z, q.w};
    UNROLL for (int m = 0; m < 4; m++) nibble_lookup16(table, v[m], w[m], w[4 + m]);
}

struct IQ4_NL : Format {
    static constexpr u32 BYTES = 18, WIDTH = 32, PARTS = 1, CHAINS = 8;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 16)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d)}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int) { return piece<U4>(p, 0); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) { iq4_values(q, w); }
};
struct IQ4_XS : Format {
    static constexpr u32 BYTES = 136, WIDTH = 256, PARTS = 8, CHAINS = 4;
    static constexpr int SUBS = 1;
    struct Head { f32 d; u32 high, low; };
    struct Raw { U2 h; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<U2>(p, 128)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half((u16)r.h.x), r.h.x >> 16, r.h.y}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U4>(p, 16u * part); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) { iq4_values(q, w); }
    static __device__ inline i32 scale(const Head& h, int part, int) {
        return (i32)((h.low >> 4 * part & 15u) | (h.high >> 2 * part & 3u) << 4) - 32;
    }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) { return scale(h, (int)(4u * (u32)j + q), half); }
    static __device__ inline void second_half(Head& h) { h.low >>= 16, h.high >>= 8; }
};
