// What the block scorers share: the step record, the dot's order, sums of several values over a wave's lanes.
//
// A dot is 32 FMA chains of four values and the tree of 16, 8, 4, 2, 1 over them. `halve` does one level for two values at
// once: each lane keeps one and gives the other away, so a level halves the values of a lane. The same pairs are added in
// the same tree as by five exchanges a value, so the bits are the same. What a lane keeps is chosen by its number, and to
// avoid selects the choice is made when data is loaded: slot s of a lane holds value s ^ (bits of the lane).
#pragma once
#include "side/side.cuh"

constexpr u32 INDEX_DIM = 128, INDEX_HEADS = 4, QUERY_DIM = INDEX_DIM * INDEX_HEADS;
constexpr f32 TAIL_BONUS = 1e9f;

// The negative control: two levels of the tree exchanged.
#if defined(STRATA_BROKEN)
constexpr int LEVEL_16 = 8, LEVEL_8 = 16;
#else
constexpr int LEVEL_16 = 16, LEVEL_8 = 8;
#endif

struct alignas(16) StepRecord { i32 pos, n_kv, n_bid, width; };

// fma(k3, q3, fma(k2, q2, fma(k1, q1, k0 * q0)))
DEVICE f32 chain(const F4& k, const F4& q) { return fma_(k.w, q.w, fma_(k.z, q.z, fma_(k.y, q.y, k.x * q.x))); }
// NaN and what is not positive count as 0.
DEVICE f32 relu(f32 d) { return d > 0.0f ? d : 0.0f; }
// One level of the tree for two values, of which this lane keeps one.
template <int mask> DEVICE f32 halve(f32 keep, f32 give) { return keep + lane_xor<mask>(give); }
// 2 if the lane's bit of the higher level is set, plus 1 for the lower one.
template <int high, int low> DEVICE u32 turn_of() { return ((lane() & (u32)high) ? 2u : 0u) | ((lane() & (u32)low) ? 1u : 0u); }

DEVICE F4 load_f4(const f32* p) { return *(const F4*)p; }
DEVICE F4 load_f4_once(const f32* p) { return __builtin_bit_cast(F4, load_once((const U4*)p)); }

// Score of one key by a whole wave, lane l with values 4l..4l+3; right in lanes whose bits 16 and 8 are clear.
DEVICE f32 score_by_wave(const F4& key, const f32* RESTRICT query) {
    u32 turn = turn_of<LEVEL_16, LEVEL_8>();
    f32 p[4];
    UNROLL for (u32 h = 0; h < 4; h++) p[h] = chain(key, load_f4(query + (h ^ turn) * INDEX_DIM + 4 * lane()));
    f32 d = halve<LEVEL_8>(halve<LEVEL_16>(p[0], p[2]), halve<LEVEL_16>(p[1], p[3]));
    d = d + lane_xor<4>(d);
    d = d + lane_xor<2>(d);
    d = d + lane_xor<1>(d);
    f32 r0 = relu(d), r1 = lane_xor<LEVEL_8>(r0), r2 = lane_xor<LEVEL_16>(r0), r3 = lane_xor<LEVEL_16>(r1);
    return ((r0 + r1) + r2) + r3;
}
// The score of a query's last block.
DEVICE f32 tail_by_wave(const f32* RESTRICT dead, const f32* RESTRICT query, i32 n_kv) {
    f32 s = score_by_wave(load_f4(dead + 4 * lane()), query);
    return (n_kv & 3) ? s + TAIL_BONUS : s;
}
