// Q8_0: 32 codes of eight bits and a scale.
#pragma once
#include "products/formats/format.cuh"

struct Q8_0 : Format {
    static constexpr u32 BYTES = 34, WIDTH = 32, PARTS = 1, CHAINS = 8;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 32)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d)}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    struct Part { U4 a, b; };
    static __device__ inline Part load(const Place& p, int) { return Part{piece<U4>(p, 0), piece<U4>(p, 16)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32*) {
        const U4 a = part.a, b = part.b;
        w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
    }
};
