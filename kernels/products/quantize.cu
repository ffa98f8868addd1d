// Activations to int8 blocks of 32 or 256 values with one scale each (NUMERICS.md 1.6), and the sums of 32 codes that formats with
// minima want; of wide blocks also those of 16, two to a word (`pairs`). With `second`, rows t + rows hold the second order: what the
// codes of row t leave out, quantised again.
#include "side/side.cuh"

#define ACT_TINY 7.888609052210118e-31f  // 2^-100

// Codes of four values, packed.
DEVICE u32 act_codes(const F4& x, f32 factor) {
    // |x * factor| <= 127.00002: adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits
    const f32 magic = 12582912.0f;
    u32 a = bits_of(x.x * factor + magic), b = bits_of(x.y * factor + magic), c = bits_of(x.z * factor + magic), d = bits_of(x.w * factor + magic);
    return byte_permute<0x5410>(byte_permute<0x0040>(a, b) & 0xffffu, byte_permute<0x0040>(c, d) & 0xffffu);
}
DEVICE u32 act_amax(const F4& x) {
    const u32 m = 0x7fffffffu;
    return larger(larger(bits_of(x.x) & m, bits_of(x.y) & m), larger(bits_of(x.z) & m, bits_of(x.w) & m));
}
DEVICE f32 code_of(u32 word, int i) { return float_of_int((i32)(i8)(word >> 8 * i)); }
DEVICE F4 left_out(const F4& x, u32 codes, f32 scale) {
    return F4{fma_(-scale, code_of(codes, 0), x.x), fma_(-scale, code_of(codes, 1), x.y), fma_(-scale, code_of(codes, 2), x.z),
              fma_(-scale, code_of(codes, 3), x.w)};
}

// Lane l holds words values 4 l words.. of the wave's 32 * 4 * words values, `width` of which share a scale.
template <u32 width, int words>
DEVICE void quantize(const f32* RESTRICT x, u32* RESTRICT codes, f32* RESTRICT scales, i32* RESTRICT sums, u32* RESTRICT pairs, u32 count,
                     u32 second) {
    constexpr u32 lanes = width / (4 * words);  // that share a scale
    const u32 at = (block_x() * 8u + wave()) * 32u + lane(), block = at / lanes;
    const bool live = block < count;
    F4 v[words];
    UNROLL for (int i = 0; i < words; i++) v[i] = live ? ((const F4*)x)[at * words + i] : F4{0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 order = 0; order <= second; order++) {
        u32 top = 0;
        UNROLL for (int i = 0; i < words; i++) top = larger(top, act_amax(v[i]));
        top = larger(top, lane_xor<1>(top));
        top = larger(top, lane_xor<2>(top));
        top = larger(top, lane_xor<4>(top));
        if constexpr (lanes == 32) {
            top = larger(top, lane_xor<8>(top));
            top = larger(top, lane_xor<16>(top));
        }
        const f32 amax = float_of_bits(top);
        const bool zero = amax < ACT_TINY;
        const f32 scale = zero ? 0.0f : div_(amax, 127.0f), factor = div_(127.0f, zero ? 1.0f : amax);
        u32 q[words];
        i32 sum = 0;
        UNROLL for (int i = 0; i < words; i++) {
            q[i] = zero ? 0u : act_codes(v[i], factor);
            sum = dot4(q[i], 0x01010101u, sum);
            v[i] = left_out(v[i], q[i], scale);
        }
        sum += lane_xor<1>(sum);
        const i32 half = sum, other = lane_xor<2>(sum);  // of 16 codes in wide blocks
        sum += other;
        if constexpr (words == 1) sum += lane_xor<4>(sum);
        if (live) {
            const u64 beyond = (u64)order * count;  // blocks of the first order
            if constexpr (words == 2) ((U2*)codes)[beyond * 32u + at] = U2{q[0], q[1]};
            else codes[beyond * 8u + at] = q[0];
            if (at % lanes == 0) scales[beyond + block] = scale;
            if (at % (8u / words) == 0) {
                sums[beyond * (width / 32u) + at / (8u / words)] = sum;
                if constexpr (words == 2) pairs[beyond * 8u + at / 4u] = ((u32)half & 0xffffu) | (u32)other << 16;
            }
        }
    }
}

// count: blocks of all rows together.
KERNEL(256) quantize_q32(const f32* RESTRICT x, u32* RESTRICT codes, f32* RESTRICT scales, i32* RESTRICT sums, u32 count, u32 second) {
    quantize<32, 1>(x, codes, scales, sums, nullptr, count, second);
}
KERNEL(256) quantize_q256(const f32* RESTRICT x, u32* RESTRICT codes, f32* RESTRICT scales, i32* RESTRICT sums, u32* RESTRICT pairs, u32 count,
                          u32 second) {
    quantize<256, 2>(x, codes, scales, sums, pairs, count, second);
}
