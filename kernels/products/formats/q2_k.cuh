// Q2_K: 256 codes of two bits with a scale and a minimum of four bits for each 16. Codes of words m of the first and second 16
// values of a part are at bits 2 m of the bytes of x and y.
#pragma once
#include "products/formats/format.cuh"

struct Q2_K : Format {
    static constexpr u32 BYTES = 84, WIDTH = 256, PARTS = 8, CHAINS = 4;
    static constexpr int SUBS = 2;
    static constexpr bool MINIMA = true, MINIMA_16 = true, SMALL = true;
    struct Head { f32 d, least; U4 both; };
    struct Raw { u32 d; U4 both; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u32>(p, 80), piece<U4>(p, 64)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half((u16)r.d), float_of_half((u16)(r.d >> 16)), r.both}; }
    typedef U2 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U2>(p, 8u * (u32)part); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32*) {
        UNROLL for (int m = 0; m < 4; m++) w[m] = q.x >> 2 * m & 0x03030303u, w[4 + m] = q.y >> 2 * m & 0x03030303u;
    }
    // Scale and minimum.
    static __device__ inline u32 pair(const Head& h, int part, int half) {
        const u32 s[4] = {h.both.x, h.both.y, h.both.z, h.both.w};
        return s[part >> 1] >> (16 * (part & 1) + 8 * half);
    }
    static __device__ inline u32 pair4(const Head& h, int j, u32 q, int half) {
        // by a mask: a choice would be made between addresses, and put the head in memory
        const u32 second = 0u - (q >> 1), s = ((j ? h.both.z : h.both.x) & ~second) | ((j ? h.both.w : h.both.y) & second);
        return s >> (16u * (q & 1u) + 8u * (u32)half);
    }
    static __device__ inline i32 scale(const Head& h, int part, int half) { return (i32)(pair(h, part, half) & 15u); }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) { return (i32)(pair4(h, j, q, half) & 15u); }
    static __device__ inline i32 minimum(const Head& h, int part, int half) { return (i32)(pair(h, part, half) >> 4 & 15u); }
    static __device__ inline i32 minimum4(const Head& h, int j, u32 q, int half) { return (i32)(pair4(h, j, q, half) >> 4 & 15u); }
    static __device__ inline u32 minima(const Head& h, int i) {
        const u32 s[4] = {h.both.x, h.both.y, h.both.z, h.both.w};
        return s[i] >> 4 & 0x0f0f0f0fu;
    }
    static __device__ inline f32 dmin(const Head& h) { return h.least; }
};
