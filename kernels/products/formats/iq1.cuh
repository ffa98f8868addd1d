// IQ1_S and IQ1_M: groups of eight values -1, 0 or 1 by names of eleven bits, all moved up or down by an eighth; codes are eight times
// that. Two names that differ in their top bit share a word of the table: a nibble for each value, two bits of it for each name.
#pragma once
#include "products/formats/format.cuh"

// Codes of a group: 8 g + 1, or 8 g - 1 where `down` is 1.
DEVICE void iq1_group(const u32* table, u32 low, u32 upper, u32 down, u32& first, u32& second) {
    const u32 word = table[low | (upper & 3u) << 8] >> (upper >> 1 & 2u) & 0x33333333u;
    nibble_lookup8(0x000901f9u, 0x0007fff7u, word | down * 0x44444444u, first, second);
}

struct IQ1_S : Format {
    static constexpr u32 BYTES = 50, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 1024;
    static constexpr int SUBS = 1;
    static constexpr bool PART_SCALES = true;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 48)}; }
    // an eighth of a half is exact
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d) * 0.125f}; }
    // low bytes of four names; their upper three bits each, three of the scale, one for moved down
    struct Part { u32 q; u16 h; };
    static __device__ inline Part load(const Place& p, int part) { return Part{piece<u32>(p, 4u * (u32)part), piece<u16>(p, 32u + 2u * (u32)part)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32* table) {
        const u32 h = part.h;
        UNROLL for (int g = 0; g < 4; g++) iq1_group(table, part.q >> 8 * g & 255u, h >> 3 * g & 7u, h >> 15, w[2 * g], w[2 * g + 1]);
    }
    static __device__ inline i32 part_scale(const Part& part) { return (i32)(2u * ((u32)part.h >> 12 & 7u) + 1u); }
};
struct IQ1_M : Format {
    static constexpr u32 BYTES = 56, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 1024;
    static constexpr int SUBS = 2;
    // four times 12 bits of scales and 4 of d, lowest first
    struct Head { f32 d; U2 scales; };
    typedef U2 Raw;
    static __device__ inline Raw raw(const Place& p) { return piece<U2>(p, 48); }
    static __device__ inline Head opened(const Raw& r) {
        const u32 d = (r.x >> 12 & 15u) | (r.x >> 24 & 0xf0u) | (r.y >> 4 & 0xf00u) | (r.y >> 16 & 0xf000u);
        return Head{float_of_half((u16)d) * 0.125f, r};  // an eighth of a half is exact
    }
    // low bytes of four names; for each its upper three bits and one for moved down
    struct Part { u32 q; u16 h; };
    static __device__ inline Part load(const Place& p, int part) { return Part{piece<u32>(p, 4u * (u32)part), piece<u16>(p, 32u + 2u * (u32)part)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32* table) {
        UNROLL for (int g = 0; g < 4; g++) {
            const u32 h = (u32)part.h >> 4 * g;
            iq1_group(table, part.q >> 8 * g & 255u, h & 7u, h >> 3 & 1u, w[2 * g], w[2 * g + 1]);
        }
    }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) {
        return (i32)(2u * ((j ? h.scales.y : h.scales.x) >> (16u * (q >> 1) + 6u * (q & 1u) + 3u * (u32)half) & 7u) + 1u);
    }
    static __device__ inline i32 scale(const Head& h, int part, int half) { return scale4(h, part >> 2, (u32)part & 3u, half); }
};
