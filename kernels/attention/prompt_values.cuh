// Weighted values of float rows (fp16, q4_0) in the defined order: one fused multiply-add a cell, cells ascending. A wave
// has 64 dimensions, a lane two of them, for all heads. And the rotation of q4_0 rows.
#pragma once
#include "attention/prompt_cells.cuh"

#define Q4_ROW 144

// Rotates a row of 256 held eight neighbouring values a lane (orthonormal Walsh-Hadamard).
DEVICE void hadamard_step(f32& a, f32& b) {
    const f32 sum = a + b;
    b = a - b;
    a = sum;
}
template <int mask> DEVICE void hadamard_lanes(u32 l, f32 (&x)[8]) {
    UNROLL for (int i = 0; i < 8; i++) {
        const f32 other = lane_xor<mask>(x[i]);
        x[i] = l & (u32)mask ? other - x[i] : x[i] + other;
    }
}
DEVICE void hadamard_wave(u32 l, f32 (&x)[8]) {
    UNROLL for (int i = 0; i < 8; i++) x[i] *= 0.0625f;
    UNROLL for (int h = 1; h < 8; h *= 2) UNROLL for (int i = 0; i < 8; i++) if (!(i & h)) hadamard_step(x[i], x[i + h]);
    hadamard_lanes<1>(l, x);
    hadamard_lanes<2>(l, x);
    hadamard_lanes<4>(l, x);
    hadamard_lanes<8>(l, x);
    hadamard_lanes<16>(l, x);
}

// Byte `part` of a row of `bytes` bytes; all rows lie below 2^32 bytes.
template <u32 bytes> DEVICE const u8* byte_row(const u8* rows, i32 row, u32 part) { return rows + ((u32)row * bytes + part); }

// A lane's two values of a row: 64 w + 2 l and the next.
struct HalfValues {
    typedef u32 Raw;
    static __device__ inline Raw load(u32 l, u32 w, const u8* rows, i32 row) { return *(const u32*)byte_row<512>(rows, row, 128u * w + 4u * l); }
    static __device__ inline F2 decode(u32, Raw v) { return F2{float_of_half((u16)v), float_of_half((u16)(v >> 16))}; }
    static constexpr bool rotated = false;
};
// Byte j of a block has element j in its low half and j + 16 in its high one: lanes 8..15 of the 16 of a block take high
// halves.
struct Q4Values {
    struct Raw { u16 codes, scale; };
    static __device__ inline Raw load(u32 l, u32 w, const u8* rows, i32 row) {
        const u8* block = byte_row<Q4_ROW>(rows, row, 18u * (2u * w + (l >> 4)));
        return Raw{*(const u16*)(block + (2u + 2u * (l & 7u))), *(const u16*)block};
    }
    static __device__ inline F2 decode(u32 l, Raw v) {
        const u32 codes = v.codes >> (l >> 1 & 4u);
        const f32 scale = float_of_half(v.scale);
        return F2{float_of_int((i32)(codes & 15u) - 8) * scale, float_of_int((i32)(codes >> 8 & 15u) - 8) * scale};
    }
    static constexpr bool rotated = true;
};

// Merges a chunk's values into `sums`: weights p[cell][head]; `rows_live` has the bits of the cells that are not masked.
template <int G, class Values>
DEVICE void merge_values(u32 l, u32 w, const u8* values, Rows2 rows, u64 rows_live, const f32* p, const f32 (*merge)[2], F2 (&sums)[G]) {
    constexpr u32 ahead = 8;
    F2 acc[G] = {};
    typename Values::Raw next[ahead];
    UNROLL for (u32 j = 0; j < ahead; j++) next[j] = Values::load(l, w, values, lane_get(rows.a, j));
    NO_UNROLL for (u32 c = 0; c < CHUNK_CELLS; c += ahead) {
        F2 v[ahead];
        UNROLL for (u32 j = 0; j < ahead; j++) v[j] = Values::decode(l, next[j]);
        // the last round loads the first rows again
        const u32 then = c + ahead;
        const i32 from = then & 32u ? rows.b : rows.a;
        UNROLL for (u32 j = 0; j < ahead; j++) next[j] = Values::load(l, w, values, lane_get(from, (then & 31u) + j));
        UNROLL for (u32 j = 0; j < ahead; j++) {
            if (!(rows_live >> (c + j) & 1u)) continue;
            UNROLL for (int h = 0; h < G; h += 4) {
                const F4 weight = *(const F4*)(p + (c + j) * G + h);
                const f32 x[4] = {weight.x, weight.y, weight.z, weight.w};
                UNROLL for (int i = 0; i < 4; i++) {
                    acc[h + i].x = fma_(x[i], v[j].x, acc[h + i].x);
                    acc[h + i].y = fma_(x[i], v[j].y, acc[h + i].y);
                }
            }
        }
    }
    UNROLL for (int h = 0; h < G; h++) {
        const f32 keep = merge[h][0], take = merge[h][1];
        sums[h] = F2{fma_(sums[h].x, keep, acc[h].x * take), fma_(sums[h].y, keep, acc[h].y * take)};
    }
}

// Sums over weights to the output, rotated back if the values were rotated; `rows` is shared memory for [G][256].
template <int G, class Values>
DEVICE void finish_values(u32 l, u32 w, const F2 (&sums)[G], const f32 (*totals)[2], bool started, f32* rows, f32* out, i32 group) {
    UNROLL for (int h = 0; h < G; h++) {
        const f32 sum = started ? totals[h][0] : 1.0f;
        const F2 v = started ? F2{div_(sums[h].x, sum), div_(sums[h].y, sum)} : F2{0.0f, 0.0f};
        if (Values::rotated) *(F2*)(rows + h * HEAD_DIM + 64u * w + 2u * l) = v;
        else if (h < group) *(F2*)(out + (u32)h * HEAD_DIM + 64u * w + 2u * l) = v;
    }
    if constexpr (Values::rotated) {
        barrier_lds();
        for (u32 h = wave(); h < (u32)G; h += 4) {
            f32 x[8];
            UNROLL for (int i = 0; i < 8; i++) x[i] = rows[h * HEAD_DIM + 8u * l + i];
            hadamard_wave(l, x);
            if ((i32)h < group) {
                F4* to = (F4*)(out + h * HEAD_DIM + 8u * l);
                to[0] = F4{x[0], x[1], x[2], x[3]};
                to[1] = F4{x[4], x[5], x[6], x[7]};
            }
        }
    }
}
