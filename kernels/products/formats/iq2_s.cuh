// IQ2_S: groups of eight magnitudes as in IQ2_XS by names of ten bits, a sign for each value, a scale for each 16.
#pragma once
#include "products/formats/format.cuh"

struct IQ2_S : Format {
    static constexpr u32 BYTES = 82, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 1024;
    static constexpr int SUBS = 2;
    struct Head { f32 d; U2 scales; };
    struct Raw { u16 d; U2 scales; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 80), piece<U2>(p, 72)}; }
    // an eighth of a half is exact
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d) * 0.125f, r.scales}; }
    // low bytes of four names, the sign of value i of group g at bit 4 i + g, upper pairs of the names
    struct Part { U2 q; u8 upper; };
    static __device__ inline Part load(const Place& p, int part) {
        return Part{piece<U2>(p, 8u * (u32)part), p.tile[64u * p.count + p.slot * 8u + (u32)part]};
    }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32* table) {
        const u32 signs = part.q.y;
        UNROLL for (int g = 0; g < 4; g++) {
            const u32 name = (part.q.x >> 8 * g & 255u) | ((u32)part.upper << (8 - 2 * g) & 0x300u);
            const u32 negative = (g < 2 ? signs << (2 - g) : signs >> (g - 2)) & 0x44444444u;
            nibble_lookup8(0x002b1908u, 0x00d5e7f8u, table[name] | negative, w[2 * g], w[2 * g + 1]);
        }
    }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) {
        return (i32)(2u * ((j ? h.scales.y : h.scales.x) >> (8u * q + 4u * (u32)half) & 15u) + 1u);
    }
    static __device__ inline i32 scale(const Head& h, int part, int half) { return scale4(h, part >> 2, (u32)part & 3u, half); }
};
