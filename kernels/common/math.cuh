// Elementary functions: the polynomials of NUMERICS.md section 1, every FMA written.
#pragma once
#include "side/side.cuh"

// 2^k for k in -126..=127.
DEVICE f32 power_of_two(i32 k) { return float_of_bits((u32)(k + 127) << 23); }

DEVICE f32 exp_(f32 x) {
    const f32 magic = 12582912.0f;
    f32 shifted = fma_(x, 1.44269504088896340736f, magic);
    f32 n = shifted - magic;
    i32 k = (i32)(bits_of(shifted) - bits_of(magic));
    f32 r = fma_(n, 2.1219444e-4f, fma_(n, -0.693359375f, x));
    f32 p = fma_(1.98756915e-4f, r, 1.39819995e-3f);
    p = fma_(p, r, 8.3334519e-3f);
    p = fma_(p, r, 4.1665796e-2f);
    p = fma_(p, r, 1.66666655e-1f);
    p = fma_(p, r, 5.0000001e-1f);
    f32 e = fma_(p * r, r, r) + 1.0f;
    i32 half = k >> 1;
    f32 y = e * power_of_two(half) * power_of_two(k - half);
    y = x < -87.0f ? 0.0f : y;
    y = x > 88.72283f ? float_of_bits(0x7f800000u) : y;
    return x != x ? x : y;
}
DEVICE f32 magnitude(f32 x) { return float_of_bits(bits_of(x) & 0x7fffffffu); }
