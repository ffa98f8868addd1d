// Words built on a side's instructions.
#pragma once

DEVICE u32 lane() { return thread_x() & 31u; }
// One number for the whole wave, which AMD's compiler is told: loops and branches on it keep every lane on.
DEVICE u32 wave() {
#if STRATA_CUDA
    return thread_x() >> 5;
#else
    return amd_first_lane(thread_x() >> 5);
#endif
}

template <class T> DEVICE u32 to_bits(T v) {
    static_assert(sizeof(T) == 4, "one register");
    return __builtin_bit_cast(u32, v);
}
template <class T> DEVICE T from_bits(u32 v) { return __builtin_bit_cast(T, v); }

// The value of the lane whose number differs by `mask`: 1, 2, 4, 8 or 16.
template <int mask, class T> DEVICE T lane_xor(T v) {
    static_assert(mask == 1 || mask == 2 || mask == 4 || mask == 8 || mask == 16, "one bit of a lane number");
#if STRATA_CUDA
    return from_bits<T>(nv_shfl_xor(to_bits(v), mask));
#else
    if constexpr (mask == 16) return from_bits<T>(amd_permlanex16(to_bits(v), 0x76543210u, 0xfedcba98u));
    else return from_bits<T>(amd_dpp_xmask<mask>(to_bits(v)));
#endif
}
// The value of lane `src`, which may differ between lanes.
template <class T> DEVICE T lane_get(T v, u32 src) {
#if STRATA_CUDA
    return from_bits<T>(nv_shfl(to_bits(v), src));
#else
    return from_bits<T>(amd_bpermute(src << 2, to_bits(v)));
#endif
}
// The value of lane `src`, which all lanes name alike.
template <class T> DEVICE T lane_read(T v, u32 src) {
#if STRATA_CUDA
    return from_bits<T>(nv_shfl(to_bits(v), src));
#else
    return from_bits<T>(amd_readlane(to_bits(v), src));
#endif
}
// The value of lane - by; a lane below `by` keeps its own.
template <class T> DEVICE T lane_up(T v, u32 by) { return lane_get(v, lane() >= by ? lane() - by : lane()); }
DEVICE u32 ballot(bool p) {
#if STRATA_CUDA
    return nv_ballot(p);
#else
    return amd_ballot(p);
#endif
}
DEVICE bool any_lane(bool p) { return ballot(p) != 0u; }
// The bits of the lanes below this one.
DEVICE u32 lanes_below() { return (1u << lane()) - 1u; }

// The tree of 16, 8, 4, 2, 1: every lane ends with the same sum.
template <class T> DEVICE T wave_sum(T v) {
    v = v + lane_xor<16>(v);
    v = v + lane_xor<8>(v);
    v = v + lane_xor<4>(v);
    v = v + lane_xor<2>(v);
    v = v + lane_xor<1>(v);
    return v;
}
template <class T> DEVICE T larger(T a, T b) { return a > b ? a : b; }
template <class T> DEVICE T smaller(T a, T b) { return a < b ? a : b; }
template <class T> DEVICE T wave_max(T v) {
    v = larger(v, lane_xor<16>(v));
    v = larger(v, lane_xor<8>(v));
    v = larger(v, lane_xor<4>(v));
    v = larger(v, lane_xor<2>(v));
    v = larger(v, lane_xor<1>(v));
    return v;
}
// Inclusive sum over lanes 0..=lane.
DEVICE u32 wave_scan(u32 v) {
    UNROLL for (u32 by = 1; by < 32; by <<= 1) {
        u32 other = lane_up(v, by);
        v += lane() >= by ? other : 0u;
    }
    return v;
}

// c + the sum of four products of signed bytes.
DEVICE i32 dot4(u32 a, u32 b, i32 c) {
#if STRATA_CUDA
    return nv_dp4a((i32)a, (i32)b, c);
#else
    return amd_dot4((i32)a, (i32)b, c);
#endif
}
// a * b + c where both factors are below 2^23 in magnitude: AMD multiplies 24 bits at full rate, 32 at a quarter.
DEVICE i32 multiply_add24(i32 a, i32 b, i32 c) {
#if STRATA_CUDA
    return a * b + c;
#else
    return ((i32)((u32)a << 8) >> 8) * ((i32)((u32)b << 8) >> 8) + c;
#endif
}
// Byte i of the result is the byte that nibble i of the selector names: 0..3 of `low`, 4..7 of `high`.
template <u32 selector> DEVICE u32 byte_permute(u32 low, u32 high) {
#if STRATA_CUDA
    return nv_byte_perm(low, high, selector);
#else
    constexpr u32 bytes = (selector & 7u) | (selector >> 4 & 7u) << 8 | (selector >> 8 & 7u) << 16 | (selector >> 12 & 7u) << 24;
    return amd_perm(high, low, bytes);
#endif
}
// Four lookups in a table of eight bytes (`low` 0..3, `high` 4..7): byte i of the result by byte i of `index` (0..7).
DEVICE u32 byte_lookup(u32 low, u32 high, u32 index) {
#if STRATA_CUDA
    u32 pairs = index | index >> 4;
    return nv_byte_perm(low, high, (pairs & 0xffu) | (pairs >> 8 & 0xff00u));
#else
    return amd_perm(high, low, index);
#endif
}
// Four lookups in a table of sixteen bytes by bytes 0..15.
DEVICE u32 byte_lookup16(const u32 (&table)[4], u32 index) {
    u32 low = byte_lookup(table[0], table[1], index & 0x07070707u), high = byte_lookup(table[2], table[3], index & 0x07070707u);
    u32 pick = (index >> 3 & 0x01010101u) * 0xffu;
    return (low & ~pick) | (high & pick);
}
// Eight lookups in a table of sixteen bytes by the nibbles of `index`: low nibbles of its bytes to `low`, high ones to `high`.
DEVICE void nibble_lookup16(const u32 (&table)[4], u32 index, u32& low, u32& high) {
#if STRATA_CUDA
    // a permute takes four nibbles, so the results alternate until the last two permutes
    u32 within = index & 0x77777777u, upper = 0x32103210u | (index & 0x88888888u) >> 1;
    u32 a = nv_byte_perm(nv_byte_perm(table[0], table[1], within), nv_byte_perm(table[2], table[3], within), upper);
    within >>= 16, upper >>= 16;
    u32 b = nv_byte_perm(nv_byte_perm(table[0], table[1], within), nv_byte_perm(table[2], table[3], within), upper);
    low = nv_byte_perm(a, b, 0x6420u), high = nv_byte_perm(a, b, 0x7531u);
#else
    low = byte_lookup16(table, index & 0x0f0f0f0fu), high = byte_lookup16(table, index >> 4 & 0x0f0f0f0fu);
#endif
}
// Eight lookups in a table of eight bytes (`low` 0..3, `high` 4..7) by the nibbles of `index`, 0..7, in order.
DEVICE void nibble_lookup8(u32 low, u32 high, u32 index, u32& first, u32& second) {
#if STRATA_CUDA
    first = nv_byte_perm(low, high, index), second = nv_byte_perm(low, high, index >> 16);
#else
    const u32 even = amd_perm(high, low, index & 0x07070707u), odd = amd_perm(high, low, index >> 4 & 0x07070707u);
    first = byte_permute<0x5140>(even, odd), second = byte_permute<0x7362>(even, odd);
#endif
}
// Transposes a 4 x 4 byte matrix held by four neighbouring lanes, a row each: lane i ends with column i.
DEVICE u32 byte_transpose_quad(u32 v) {
#if STRATA_CUDA
    u32 pair = nv_shfl_xor(v, 1);
#else
    u32 pair = amd_quad_perm<0xb1>(v);
#endif
    bool odd = lane() & 1u;
    v = odd ? byte_permute<0x3715>(v, pair) : byte_permute<0x6240>(v, pair);
#if STRATA_CUDA
    u32 far = nv_shfl_xor(v, 2);
#else
    u32 far = amd_quad_perm<0x4e>(v);
#endif
    bool upper = lane() & 2u;
    return upper ? byte_permute<0x3276>(v, far) : byte_permute<0x5410>(v, far);
}
DEVICE f32 float_of_bf16(u16 h) { return float_of_bits((u32)h << 16); }

#if STRATA_CUDA && STRATA_SM >= 900
DEVICE void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
#endif
