// Q6_K: 256 codes of six bits less 32, in eight parts with a scale for each 16 values. Codes come out times four: six bits at
// the top of a byte need no sign extension, and the sum of a block is shifted back.
#pragma once
#include "products/formats/format.cuh"

struct Q6_K : Format {
    static constexpr u32 BYTES = 210, WIDTH = 256, PARTS = 8, CHAINS = 4;
    static constexpr int SUBS = 2, SHIFT = 2;
    struct Head { f32 d; U4 scales; };
    struct Raw { u16 d; U4 scales; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 208), piece<U4>(p, 192)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d), r.scales}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    // Low nibbles as in Q4_K; two bits of word m of the first and second 16 values at bits 2m of the bytes of x and y.
    struct Part { U4 q; U2 h; };
    static __device__ inline Part load(const Place& p, int part) { return Part{piece<U4>(p, 16u * part), piece<U2>(p, 128u + 8u * part)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32*) {
        const U4 q = part.q;
        const U2 h = part.h;
        const u32 v[4] = {q.x, q.y, q.z, q.w};
        UNROLL for (int m = 0; m < 4; m++) {
            w[m] = ((v[m] << 2 & 0x3c3c3c3cu) ^ 0x80808080u) ^ (h.x << (6 - 2 * m) & 0xc0c0c0c0u);
            w[4 + m] = ((v[m] >> 2 & 0x3c3c3c3cu) ^ 0x80808080u) ^ (h.y << (6 - 2 * m) & 0xc0c0c0c0u);
        }
    }
    static __device__ inline i32 scale(const Head& h, int part, int half) {
        const u32 s[4] = {h.scales.x, h.scales.y, h.scales.z, h.scales.w};
        return (i32)(i8)(s[part >> 1] >> (16 * (part & 1) + 8 * half));
    }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) {
        const u32 s = j ? (q < 2u ? h.scales.z : h.scales.w) : (q < 2u ? h.scales.x : h.scales.y);
        return (i32)(i8)(s >> (16u * (q & 1u) + 8u * (u32)half));
    }
    static __device__ inline void second_half(Head& h) { h.scales.x = h.scales.z, h.scales.y = h.scales.w; }
};
