// Shared memory of a product tile: rows of 64 or 128 bytes, one stage of the walk along K.
#pragma once
#include "side/side.cuh"

// Where 16-byte chunk `chunk` of a row of `depth` bytes lies: chunks move with the row so that eight neighbouring rows, or four
// with 32 bytes each, meet in no bank. Two rows of 64 bytes share a line of 128.
template <u32 depth> DEVICE u32 stage_at(u32 row, u32 chunk) {
    static_assert(depth == 64u || depth == 128u, "a line or half of one");
    if constexpr (depth == 128u) {
        return row * 128u + (chunk ^ (row & 7u)) * 16u;
    } else {
        u32 line = row >> 1;
        return line * 128u + ((((row & 1u) << 2) | chunk) ^ ((line & 1u) << 1 | (line >> 1 & 1u))) * 16u;
    }
}

// Codes times 2^shift, shifted back: each byte is a multiple of 2^shift.
template <int shift> DEVICE u32 unshift(u32 w) {
    if constexpr (shift == 0) return w;
    u32 t = w >> shift & (0xffu >> shift) * 0x01010101u;
    constexpr u32 sign = 0x80u >> shift;
    return t | (t & sign * 0x01010101u) * ((0x100u - 2u * sign) / sign);
}

// Four codes times a sub-scale, each product as two balanced bytes, low + 256 * high. Products stay within +-16383.
// Even and odd bytes are multiplied two at a time; 0x80 makes codes positive, rounds the high byte and keeps halves apart.
struct Planes { u32 low, high; };
DEVICE Planes planes(u32 w, i32 scale) {
    u32 s = (u32)scale, least = 0x00808080u - 0x00800080u * s;
    u32 even = ((w & 0x00ff00ffu) ^ 0x00800080u) * s + least;
    u32 odd = ((w >> 8 & 0x00ff00ffu) ^ 0x00800080u) * s + least;
    return Planes{byte_permute<0x6240>(even, odd) ^ 0x80808080u, byte_permute<0x7351>(even, odd) ^ 0x00008080u};
}

// Balanced bytes of an integer within +-32639.
DEVICE u32 low_digit(i32 v) { return (u32)v & 255u; }
DEVICE u32 high_digit(i32 v) { return (u32)((v + 128) >> 8) & 255u; }
