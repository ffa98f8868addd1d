// IQ2_XXS and IQ3_XXS: groups of magnitudes by names of eight bits from a table, and 28 bits a part for the signs of its four
// groups of eight values: seven signs, and the eighth makes their number even. A part's last four bits are its scale.
#pragma once
#include "products/formats/iq_grid.cuh"

struct IQ2_XXS : Format {
    // groups of eight magnitudes as in IQ2_XS
    static constexpr u32 BYTES = 66, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 256;
    static constexpr int SUBS = 1;
    static constexpr bool PART_SCALES = true;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 64)}; }
    // an eighth of a half is exact
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d) * 0.125f}; }
    // x: four names; y: the sign of value i of group g at bit 4 i + g, the scale above
    typedef U2 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U2>(p, 8u * (u32)part); }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32* table) {
        const u32 seven = part.y & 0x0fffffffu;
        u32 odd = seven ^ seven >> 16;
        odd ^= odd >> 8, odd ^= odd >> 4;
        const u32 signs = seven | odd << 28;
        UNROLL for (int g = 0; g < 4; g++) {
            const u32 negative = (g < 2 ? signs << (2 - g) : signs >> (g - 2)) & 0x44444444u;
            nibble_lookup8(0x002b1908u, 0x00d5e7f8u, table[part.x >> 8 * g & 255u] | negative, w[2 * g], w[2 * g + 1]);
        }
    }
    static __device__ inline i32 part_scale(const Part& part) { return (i32)(2u * (part.y >> 28) + 1u); }
};
struct IQ3_XXS : Format {
    // groups of four magnitudes, a byte each
    static constexpr u32 BYTES = 98, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 256;
    static constexpr int SUBS = 1;
    static constexpr bool PART_SCALES = true;
    struct Head { f32 d; };
    struct Raw { u16 d; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 96)}; }
    // a quarter of a half is exact
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d) * 0.25f}; }
    // names; signs of word m at bits m of the bytes, and the scale where the eighths would be, at odd bits of the last byte
    struct Part { U2 q; u32 s; };
    static __device__ inline Part load(const Place& p, int part) { return Part{piece<U2>(p, 8u * (u32)part), piece<u32>(p, 64u + 4u * (u32)part)}; }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32* table) {
        const u32 seven = part.s & 0x55ffffffu;
        u32 odd = seven ^ seven >> 16;
        odd ^= odd >> 8, odd ^= odd >> 1;
        const u32 signs = seven | (odd & 0x55u) << 25;
        UNROLL for (int m = 0; m < 8; m++)
            w[m] = with_signs(table[(m < 4 ? part.q.x : part.q.y) >> 8 * (m & 3) & 255u], part_bits(signs, m));
    }
    static __device__ inline i32 part_scale(const Part& part) {
        u32 s = part.s >> 25 & 0x55u;
        s = (s | s >> 1) & 0x33u;
        return (i32)(2u * ((s | s >> 2) & 15u) + 1u);
    }
};
