// Q5_0 and Q5_1: 32 codes of five bits with a scale, less 16 or with an offset. The fifth bits of word m are bits m of four bytes.
#pragma once
#include "products/formats/q4_1.cuh"

// Q5_0's codes come out times eight: at the top of a byte they need no sign extension.
struct Q5_0 : Format {
    static constexpr u32 BYTES = 22, WIDTH = 32, PARTS = 1, CHAINS = 8;
    static constexpr int SHIFT = 3;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 20)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d)}; }
    struct Part { U4 q; u32 h; };
    static __device__ inline Part load(const Place& p, int) { return Part{piece<U4>(p, 0), piece<u32>(p, 16)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32*) {
        const u32 v[4] = {part.q.x, part.q.y, part.q.z, part.q.w}, clear = ~part.h;
        UNROLL for (int m = 0; m < 4; m++) {
            w[m] = (v[m] << 3 & 0x78787878u) | (clear << (7 - m) & 0x80808080u);
            w[4 + m] = (v[m] >> 1 & 0x78787878u) | (clear << (3 - m) & 0x80808080u);
        }
    }
};
struct Q5_1 : Format {
    static constexpr u32 BYTES = 24, WIDTH = 32, PARTS = 1, CHAINS = 8;
    static constexpr bool MINIMA = true;
    typedef ScaleOffset Head;
    typedef u32 Raw;
    static __device__ inline Raw raw(const Place& p) { return piece<u32>(p, 20); }
    static __device__ inline Head opened(const Raw& r) { return scale_offset(r); }
    static __device__ inline f32 dmin(const Head& h) { return h.least; }
    typedef Q5_0::Part Part;
    static __device__ inline Part load(const Place& p, int) { return Q5_0::load(p, 0); }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32*) {
        nibbles(part.q, w);
        UNROLL for (int m = 0; m < 8; m++) w[m] |= (m < 4 ? part.h << (4 - m) : part.h >> (m - 4)) & 0x10101010u;
    }
};
