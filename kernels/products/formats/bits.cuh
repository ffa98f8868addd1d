// Codes of 32 values from their bits, as eight words of four signed bytes in order of the values.
#pragma once
#include "side/side.cuh"

// 16 bytes: low nibbles are values 0..15, high nibbles values 16..31.
DEVICE void nibbles(const U4& q, u32 (&w)[8]) {
    const u32 v[4] = {q.x, q.y, q.z, q.w};
    UNROLL for (int m = 0; m < 4; m++) {
        w[m] = v[m] & 0x0f0f0f0fu;
        w[4 + m] = v[m] >> 4 & 0x0f0f0f0fu;
    }
}
// The bits that belong to word m of a part: bit m of each byte of `bits`, at bit 0 of each byte of the result.
DEVICE u32 part_bits(u32 bits, int m) { return bits >> m & 0x01010101u; }
