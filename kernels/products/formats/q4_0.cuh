// Q4_0: 32 codes of four bits less 8 and a scale. Codes come out times sixteen: at the top of a byte they need no sign extension.
#pragma once
#include "products/formats/format.cuh"

struct Q4_0 : Format {
    static constexpr u32 BYTES = 18, WIDTH = 32, PARTS = 1, CHAINS = 8;
    static constexpr int SHIFT = 4;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 16)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d)}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    typedef U4 Part;
    static __device__ inline Part load(const Place& p, int) { return piece<U4>(p, 0); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) {
        const u32 v[4] = {q.x, q.y, q.z, q.w};
        UNROLL for (int m = 0; m < 4; m++) {
            w[m] = (v[m] << 4 & 0xf0f0f0f0u) ^ 0x80808080u;
            w[4 + m] = (v[m] & 0xf0f0f0f0u) ^ 0x80808080u;
        }
    }
};
