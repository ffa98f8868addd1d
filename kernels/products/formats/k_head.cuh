// The 16 bytes of scales of Q4_K and Q5_K: two halves, then eight scales and eight minima of six bits.
#pragma once
#include "products/formats/format.cuh"

struct KHead {
    f32 d, least;
    u32 scales[2], minima[2];
    __device__ inline i32 scale(int part) const { return (i32)(scales[part >> 2] >> 8 * (part & 3) & 255u); }
    __device__ inline i32 scale4(int j, u32 q) const { return (i32)(scales[j] >> 8u * q & 255u); }
    __device__ inline i32 minimum4(int j, u32 q) const { return (i32)(minima[j] >> 8u * q & 255u); }
    __device__ inline i32 minimum(int part) const { return (i32)(minima[part >> 2] >> 8 * (part & 3) & 255u); }
};
DEVICE KHead k_head(const U4& h) {
    KHead r;
    r.d = float_of_half((u16)h.x);
    r.least = float_of_half((u16)(h.x >> 16));
    r.scales[0] = h.y & 0x3f3f3f3fu;
    r.minima[0] = h.z & 0x3f3f3f3fu;
    r.scales[1] = (h.w & 0x0f0f0f0fu) | (h.y >> 2 & 0x30303030u);
    r.minima[1] = (h.w >> 4 & 0x0f0f0f0fu) | (h.z >> 2 & 0x30303030u);
    return r;
}
