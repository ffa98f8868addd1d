// IQ3_S and IQ2_XS: codes name groups of magnitudes in a table, which the kernel has brought to shared memory (TABLE words,
// made by products/tables.rs), and signs stand apart.
#pragma once
#include "products/formats/bits.cuh"
#include "products/formats/format.cuh"

// Four magnitudes, none 0, negative where a byte of `negative` is 1.
DEVICE u32 with_signs(u32 magnitudes, u32 negative) { return (magnitudes ^ negative * 255u) + negative; }

struct IQ3_S : Format {
    static constexpr u32 BYTES = 110, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 512;
    static constexpr int SUBS = 1;
    struct Head { f32 d; u32 scales; };
    struct Raw { u16 d; u32 scales; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 108), piece<u32>(p, 104)}; }
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d), r.scales}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    struct Part { U2 q; u32 signs; u8 ninth; };
    static __device__ inline Part load(const Place& p, int part) {
        return Part{piece<U2>(p, 8u * part), piece<u32>(p, 64u + 4u * part), p.tile[96u * p.count + p.slot * 8u + part]};
    }
    static __device__ inline void decode(const Part& part, int, u32 (&w)[8], const u32* table) {
        UNROLL for (int half = 0; half < 2; half++) {
            // four bits to a byte each, then two names of nine bits to a word
            const u32 low = half ? part.q.y : part.q.x, ninth = ((u32)part.ninth >> 4 * half & 15u) * 0x00204081u & 0x01010101u;
            const u32 names[2] = {byte_permute<0x5140>(low, ninth), byte_permute<0x7362>(low, ninth)};
            UNROLL for (int m = 0; m < 4; m++)
                w[4 * half + m] = with_signs(table[names[m >> 1] >> 16 * (m & 1) & 511u], part_bits(part.signs, 4 * half + m));
        }
    }
    static __device__ inline i32 scale(const Head& h, int part, int) { return (i32)(2u * (h.scales >> 4 * part & 15u) + 1u); }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) { return scale(h, (int)(4u * (u32)j + q), half); }
};
struct IQ2_XS : Format {
    // 512 groups of eight magnitudes, then 128 sets of eight signs: nibbles 0..2 name 8, 25 and 43, a sign adds 4
    static constexpr u32 BYTES = 74, WIDTH = 256, PARTS = 8, CHAINS = 4, TABLE = 640;
    static constexpr int SUBS = 2;
    struct Head { f32 d; U2 scales; };
    struct Raw { u16 d; U2 scales; };
    static __device__ inline Raw raw(const Place& p) { return Raw{piece<u16>(p, 72), piece<U2>(p, 64)}; }
    // an eighth of a half is exact
    static __device__ inline Head opened(const Raw& r) { return Head{float_of_half(r.d) * 0.125f, r.scales}; }
    static __device__ inline Head head(const Place& p) { return opened(raw(p)); }
    typedef U2 Part;
    static __device__ inline Part load(const Place& p, int part) { return piece<U2>(p, 8u * part); }
    static __device__ inline void decode(const Part& q, int, u32 (&w)[8], const u32* table) {
        UNROLL for (int g = 0; g < 4; g++) {
            const u32 code = (g < 2 ? q.x : q.y) >> 16 * (g & 1);
            nibble_lookup8(0x002b1908u, 0x00d5e7f8u, table[code & 511u] | table[512u + (code >> 9 & 127u)], w[2 * g], w[2 * g + 1]);
        }
    }
    static __device__ inline i32 scale(const Head& h, int part, int half) {
        u32 s = part < 4 ? h.scales.x : h.scales.y;
        return (i32)(2u * (s >> (8 * (part & 3) + 4 * half) & 15u) + 1u);
    }
    static __device__ inline i32 scale4(const Head& h, int j, u32 q, int half) {
        return (i32)(2u * ((j ? h.scales.y : h.scales.x) >> (8u * q + 4u * (u32)half) & 15u) + 1u);
    }
};
