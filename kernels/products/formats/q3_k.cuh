// Q3_K: 256 codes of three bits less 4 with a scale of six bits less 32 for each 16. Low pairs of bits as in Q2_K; the third bits of
// word m of a part are bits m of four bytes. Codes come out times 32: at the top of a byte they need no sign extension.
#pragma once
#include "products/formats/format.cuh"

struct Q3_K : Format {
    static constexpr u32 BYTES = 110, WIDTH = 256, PARTS = 8, CHAINS = 4;
    static constexpr int SUBS = 2, SHIFT = 5;
    // Of the scale for half h of part p the low nibble is nibble 2 p + h of `low`, the upper pair pair 2 p + h of `high`.
    struct Head { f32 d; u32 high; U2 low; };
    struct Raw { u16 d; u32 high; U2 low; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 108), piece<u32>(p, 104), piece<U2>(p, 96)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d), r.high, r.low}; }
    struct Part { U2 q; u32 h; };
    static __device__ inline Part load(const Place& p, int part) { return Part{piece<U2>(p, 8u * (u32)part), piece<u32>(p, 64u + 4u * (u32)part)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32*) {
        UNROLL for (int m = 0; m < 4; m++) {
            w[m] = ((m < 3 ? part.q.x << (5 - 2 * m) : part.q.x >> 1) & 0x60606060u) | (~(part.h << (7 - m)) & 0x80808080u);
            w[4 + m] = ((m < 3 ? part.q.y << (5 - 2 * m) : part.q.y >> 1) & 0x60606060u) | (~(part.h << (3 - m)) & 0x80808080u);
        }
    }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) {
        const u32 low = (j ? h.low.y : h.low.x) >> (8u * q + 4u * (u32)half) & 15u;
        return (i32)(low | (h.high >> (16u * (u32)j + 4u * q + 2u * (u32)half) & 3u) << 4) - 32;
    }
    static __device__ inline i32 scale(const Head& h, int part, int half) { return scale4(h, part >> 2, (u32)part & 3u, half); }
};
