// Integer digits: a float row as 24-bit integers under one scale, in three balanced bytes (NUMERICS.md section 3).
#pragma once
#include "side/side.cuh"

#define DIGIT_MAX 8355711.0f
#define DIGIT_AMAX_MIN 7.888609052210118e-31f  // 2^-100

struct DigitScale { f32 scale, factor; };

// Scale of a row of largest magnitude `amax` and the factor that makes its integers.
DEVICE DigitScale digit_scale(f32 amax) {
    DigitScale s = {0.0f, 0.0f};
    if (amax >= DIGIT_AMAX_MIN) s = DigitScale{div_(amax, DIGIT_MAX), div_(DIGIT_MAX, amax)};
    return s;
}
DEVICE i32 digit_integer(f32 x, f32 factor) {
    f32 v = rint_(x * factor);
    v = v > DIGIT_MAX ? DIGIT_MAX : v;
    v = v < -DIGIT_MAX ? -DIGIT_MAX : v;
    v = v != v ? 0.0f : v;
    return int_of_rounded(v);
}
struct Digits { i32 d0, d1, d2; };
// n = d0 + 256 d1 + 65536 d2, each in -128..=127.
DEVICE Digits digits_of(i32 n) {
    i32 d0 = (i32)(i8)n;
    i32 rest = (n - d0) >> 8;
    i32 d1 = (i32)(i8)rest;
    return Digits{d0, d1, (rest - d1) >> 8};
}
// The float of three exact digit dots.
DEVICE f32 digit_join(i32 s0, i32 s1, i32 s2) { return fma_(256.0f, float_of_int(s2 * 256 + s1), float_of_int(s0)); }
