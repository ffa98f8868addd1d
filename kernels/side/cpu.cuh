// The CPU shim: a thread is a fiber, a wave 32 neighbouring fibers, a workgroup or cluster runs to its end on one OS
// thread. Collectives and barriers are meeting points. Compiled with STRATA_CUDA=1, or STRATA_HIP=1 and STRATA_WMMA 11 or 12:
// the vendor functions below follow the PTX and RDNA manuals, lane by lane.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#ifndef STRATA_CUDA
#define STRATA_CUDA 0
#endif
#ifndef STRATA_HIP
#define STRATA_HIP 0
#endif
#if STRATA_CUDA
#define STRATA_SM 900
#define STRATA_WMMA 0
#endif

// AddressSanitizer sees accesses between the arrays of shared memory and beyond them, for the runtime keeps what no array has closed.
#if defined(__SANITIZE_ADDRESS__)
#define SHIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHIM_ASAN 1
#endif
#endif
#if defined(SHIM_ASAN)
#include <sanitizer/asan_interface.h>
#define SHIM_OPEN(at, bytes) __asan_unpoison_memory_region(at, bytes)
#define SHIM_CLOSE(at, bytes) __asan_poison_memory_region(at, bytes)
#else
#define SHIM_OPEN(at, bytes) (void)(at)
#define SHIM_CLOSE(at, bytes) (void)(at)
#endif

#define __device__
#define DEVICE static inline __attribute__((always_inline))
#define CONSTANT static const
#define KERNEL(threads) static void
#define KERNEL_OCC(threads, groups) static void
#define KERNEL_HELD(threads, groups, waves) static void
#define RESTRICT __restrict
#define UNROLL
#define NO_UNROLL
#define AMD_PIN(r)

namespace shim {

struct Wave {
    u64 slot[2][32][8];  // what lanes show each other, twice, so that one meeting serves a collective
    u32 arrived, turn;
    int what;            // the collective the arrived lanes are in
    u32 alive;
    u32 waiting[32];
};
struct Fiber;
struct Group {  // a workgroup
    u32 id[3];
    u32 rank;   // in its cluster
    u32 live, arrived, turn;
    Wave* waves;
    unsigned char* shared;
    u32 first;  // its first fiber
};
struct Copy { void* to; const void* from; u32 batch; };
struct Fiber {
    void* stack;
    Group* group;
    u32 thread;
    bool done;
    bool in_cluster_wait;
    u32 cluster_turn;  // when it last arrived at the cluster's barrier
    u32 batches;   // async copies: batches committed so far
    u32 copies;
    Copy pending[64];
};
struct Run {  // the fibers of one cluster on one OS thread
    Fiber* fibers;
    u32 threads, count, live;
    u32* ready;    // fibers that may run, in no order that matters
    u32 ready_first, ready_count;
    u32 cluster_arrived, cluster_turn;
    Group* groups;
    u32 cluster;
    u32 grid[3];
    u32 current;
    int order;     // 0 forward, 1 reversed, 2 random
    u64 random;
    void* main_stack;
    const char* error;
    u32 dynamic_at;
};
extern thread_local Run* run;

[[noreturn]] void fail(const char* what);
void wait_wave(Wave& w, int what);
void wait_group();
void arrive_cluster();
void wait_cluster();
u32 shared_site(u32 bytes);

DEVICE Fiber& self() { return run->fibers[run->current]; }
DEVICE Wave& wave_of() { Fiber& f = self(); return f.group->waves[f.thread >> 5]; }

enum Collective { xor_ = 1, get_, up_, ballot_, match_, sync_, dpp_, quad_, lanex_, lane16_, bpermute_, readlane_, mma_, matrix_ };

// Shows `n` words to the wave, waits until every lane has, and gives the buffer.
template <u32 n> DEVICE u64 (*show(int what, const u64 (&words)[n]))[8] {
    Wave& w = wave_of();
    u32 half = w.turn & 1u, l = self().thread & 31u;
    for (u32 i = 0; i < n; i++) w.slot[half][l][i] = words[i];
    wait_wave(w, what);
    return w.slot[half];
}
DEVICE u32 from_lane(int what, u32 v, u32 src) {
    u64 word[1] = {v};
    return (u32)show(what, word)[src & 31u][0];
}
DEVICE float half_value(u16 h) { return _cvtsh_ss(h); }
DEVICE float bf16_value(u16 h) { u32 b = (u32)h << 16; float f; memcpy(&f, &b, 4); return f; }
}  // namespace shim

#define SHARED(type, name, dims)                                                      \
    typedef type name##_type dims;                                                    \
    static const u32 name##_site = shim::shared_site((u32)sizeof(name##_type));       \
    name##_type& name = *(name##_type*)(shim::self().group->shared + name##_site);    \
    SHIM_OPEN(&name, sizeof(name##_type))
#define DYN_SHARED(type, name) type* name = (type*)(shim::self().group->shared + shim::run->dynamic_at)

DEVICE u32 thread_x() { return shim::self().thread; }
DEVICE u32 block_x() { return shim::self().group->id[0]; }
DEVICE u32 block_y() { return shim::self().group->id[1]; }
DEVICE u32 block_z() { return shim::self().group->id[2]; }
DEVICE u32 grid_x() { return shim::run->grid[0]; }
DEVICE u32 grid_y() { return shim::run->grid[1]; }

DEVICE u32 bits_of(f32 x) { u32 r; memcpy(&r, &x, 4); return r; }
DEVICE f32 float_of_bits(u32 x) { f32 r; memcpy(&r, &x, 4); return r; }
DEVICE f32 fma_(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEVICE f32 div_(f32 a, f32 b) { return a / b; }
DEVICE f32 sqrt_(f32 a) { return __builtin_sqrtf(a); }
DEVICE f32 rint_(f32 a) { return __builtin_rintf(a); }
DEVICE f32 max_(f32 a, f32 b) { return a != a ? b : a < b ? b : a; }
DEVICE i32 int_of_rounded(f32 a) { return (i32)__builtin_rintf(a); }
DEVICE f32 float_of_int(i32 a) { return (f32)a; }
DEVICE f32 float_of_half(u16 h) { return _cvtsh_ss(h); }
DEVICE u16 half_of_float(f32 x) { return (u16)_cvtss_sh(x, 0); }
DEVICE u32 half2_add(u32 a, u32 b) {
    u32 low = half_of_float(float_of_half((u16)a) + float_of_half((u16)b)), high = half_of_float(float_of_half((u16)(a >> 16)) + float_of_half((u16)(b >> 16)));
    return high << 16 | low;
}
DEVICE u32 popcount_(u32 x) { return (u32)__builtin_popcount(x); }
DEVICE u32 leading_zeros(u32 x) { return x ? (u32)__builtin_clz(x) : 32u; }

DEVICE void barrier() { shim::wait_group(); }
DEVICE void barrier_lds() { shim::wait_group(); }
DEVICE void barrier_lds_loads() { shim::wait_group(); }
DEVICE u32 hidden(u32 v) { return v; }
DEVICE void wave_sync() { shim::wait_wave(shim::wave_of(), shim::sync_); }

DEVICE u32 atomic_add_shared(u32* p, u32 v) { u32 old = *p; *p = old + v; return old; }
DEVICE u32 atomic_add_global(u32* p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEVICE u32 atomic_max_shared(u32* p, u32 v) { u32 old = *p; if (v > old) *p = v; return old; }
DEVICE U4 load_once(const U4* p) { return *p; }

// Copies happen when they are waited for, so that a missing wait shows.
DEVICE void async_copy16(void* shared, const void* global) {
    shim::Fiber& f = shim::self();
    if (f.copies == 64) shim::fail("more than 64 async copies in flight in one thread");
    if (((uintptr_t)shared | (uintptr_t)global) & 15u) shim::fail("async copy of unaligned addresses");
    f.pending[f.copies++] = shim::Copy{shared, global, f.batches};
}
DEVICE void async_commit() { shim::self().batches++; }
template <int n> DEVICE void async_wait() {
    shim::Fiber& f = shim::self();
    u32 kept = 0;
    for (u32 i = 0; i < f.copies; i++) {
        if (f.pending[i].batch + (u32)n < f.batches) memcpy(f.pending[i].to, f.pending[i].from, 16);
        else f.pending[kept++] = f.pending[i];
    }
    f.copies = kept;
}

#if STRATA_CUDA
DEVICE u32 nv_shfl_xor(u32 v, u32 mask) { return shim::from_lane(shim::xor_ | (int)mask << 8, v, (thread_x() & 31u) ^ mask); }
DEVICE u32 nv_shfl(u32 v, u32 src) { return shim::from_lane(shim::get_, v, src); }
DEVICE u32 nv_shfl_up(u32 v, u32 by) { u32 l = thread_x() & 31u; return shim::from_lane(shim::up_, v, l >= by ? l - by : l); }
DEVICE u32 nv_match_any(u32 v) {
    u64 word[1] = {v};
    auto all = shim::show(shim::match_, word);
    u32 r = 0;
    for (u32 i = 0; i < 32; i++) r |= (u32)((u32)all[i][0] == v) << i;
    return r;
}
DEVICE i32 nv_dp4a(i32 a, i32 b, i32 c) {
    for (int i = 0; i < 4; i++) c += (i32)(i8)(a >> 8 * i) * (i32)(i8)(b >> 8 * i);
    return c;
}
DEVICE u32 nv_byte_perm(u32 a, u32 b, u32 selector) {
    u64 bytes = (u64)b << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        u32 s = selector >> 4 * i & 15u, x = (u32)(bytes >> 8 * (s & 7u)) & 255u;
        if (s & 8u) x = x & 128u ? 255u : 0u;
        r |= x << 8 * i;
    }
    return r;
}
DEVICE void shim_ldmatrix4(u32 (&r)[4], const void* row, bool transposed) {
    if ((uintptr_t)row & 15u) shim::fail("ldmatrix of an unaligned row");
    u64 word[1] = {(u64)(uintptr_t)row};
    auto all = shim::show(shim::matrix_, word);
    u32 l = thread_x() & 31u;
    for (u32 m = 0; m < 4; m++) {
        auto at = [&](u32 i, u32 j) { return (u32)((const u16*)(uintptr_t)all[8 * m + i][0])[j]; };
        u32 i = l >> 2, j = 2 * (l & 3u);
        r[m] = transposed ? at(j, i) | at(j + 1, i) << 16 : at(i, j) | at(i, j + 1) << 16;
    }
    wave_sync();
}
DEVICE void nv_ldmatrix4(u32 (&r)[4], const void* row) { shim_ldmatrix4(r, row, false); }
DEVICE void nv_ldmatrix4_transposed(u32 (&r)[4], const void* row) { shim_ldmatrix4(r, row, true); }
// The sums of a lane: `add(sum, x, y)` for each word of its rows of A and the word of the same depths of its columns of B.
template <class Sum, class T, class Add> DEVICE void shim_mma(T (&c)[4], const u32 (&a)[4], const u32 (&b)[2], Add add) {
    u64 words[3] = {(u64)a[1] << 32 | a[0], (u64)a[3] << 32 | a[2], (u64)b[1] << 32 | b[0]};
    auto all = shim::show(shim::mma_, words);
    u32 l = thread_x() & 31u;
    for (u32 i = 0; i < 4; i++) {
        u32 row = i >> 1, col = 2 * (l & 3u) + (i & 1u);
        Sum sum = c[i];
        for (u32 half = 0; half < 2; half++)
            for (u32 t = 0; t < 4; t++) add(sum, (u32)(all[(l & ~3u) + t][half] >> 32 * row), (u32)(all[col * 4 + t][2] >> 32 * half));
        c[i] = (T)sum;
    }
}
DEVICE void nv_mma_s8(i32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    shim_mma<i32>(c, a, b, [](i32& sum, u32 x, u32 y) {
        for (int k = 0; k < 4; k++) sum += (i32)(i8)(x >> 8 * k) * (i32)(i8)(y >> 8 * k);
    });
}
DEVICE void nv_mma_s8_16(i32 (&c)[4], const u32 (&a)[2], u32 b) {
    const u32 wide_a[4] = {a[0], a[1], 0u, 0u}, wide_b[2] = {b, 0u};
    nv_mma_s8(c, wide_a, wide_b);
}
template <float (*value)(u16)> DEVICE void nv_mma_16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    shim_mma<double>(c, a, b, [](double& sum, u32 x, u32 y) {
        for (int k = 0; k < 2; k++) sum += (double)value((u16)(x >> 16 * k)) * value((u16)(y >> 16 * k));
    });
}
DEVICE void nv_mma_f16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { nv_mma_16<shim::half_value>(c, a, b); }
DEVICE void nv_mma_bf16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { nv_mma_16<shim::bf16_value>(c, a, b); }
DEVICE void nv_mma_tf32(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    // the unit reads the upper 19 bits
    shim_mma<double>(c, a, b, [](double& sum, u32 x, u32 y) { sum += (double)float_of_bits(x & ~0x1fffu) * float_of_bits(y & ~0x1fffu); });
}
DEVICE u32 nv_tf32(f32 x) { return (bits_of(x) + 0x1000u) & ~0x1fffu; }
DEVICE u32 cluster_rank() { return shim::self().group->rank; }
DEVICE void cluster_arrive() { shim::arrive_cluster(); }
DEVICE void cluster_arrive_relaxed() { shim::arrive_cluster(); }
DEVICE void cluster_wait() { shim::wait_cluster(); }
template <class T> DEVICE T* cluster_shared(T* p, u32 rank) {
    return (T*)((unsigned char*)p - shim::self().group->shared + shim::run->groups[rank].shared);
}
#endif

// Who passes the ballot.
DEVICE u32 shim_ballot(bool p) {
    u64 word[1] = {p};
    auto all = shim::show(shim::ballot_, word);
    u32 r = 0;
    for (u32 i = 0; i < 32; i++) r |= (u32)all[i][0] << i;
    return r;
}
#if STRATA_CUDA
DEVICE u32 nv_ballot(bool p) { return shim_ballot(p); }
#endif

#if STRATA_HIP
DEVICE u32 amd_first_lane(u32 v) { return v; }  // of a value that is one in the wave
DEVICE u32 amd_ballot(bool p) { return shim_ballot(p); }
template <int mask> DEVICE u32 amd_dpp_xmask(u32 v) {
    static_assert(mask > 0 && mask < 16, "within a row");
    return shim::from_lane(shim::dpp_ | mask << 8, v, (thread_x() & 31u) ^ (u32)mask);
}
template <int selector> DEVICE u32 amd_quad_perm(u32 v) {
    u32 l = thread_x() & 31u;
    return shim::from_lane(shim::quad_, v, (l & ~3u) + ((u32)selector >> 2 * (l & 3u) & 3u));
}
DEVICE u32 shim_nibble(u32 low, u32 high) { u32 l = thread_x() & 15u; return (l < 8 ? low >> 4 * l : high >> 4 * (l - 8)) & 15u; }
DEVICE u32 amd_permlanex16(u32 v, u32 low, u32 high) {
    return shim::from_lane(shim::lanex_, v, ((thread_x() & 16u) ^ 16u) + shim_nibble(low, high));
}
DEVICE u32 amd_permlane16(u32 v, u32 low, u32 high) { return shim::from_lane(shim::lane16_, v, (thread_x() & 16u) + shim_nibble(low, high)); }
DEVICE u32 amd_readlane(u32 v, u32 src) { return shim::from_lane(shim::readlane_, v, src); }
DEVICE u32 amd_bpermute(u32 byte_address, u32 v) { return shim::from_lane(shim::bpermute_, v, byte_address >> 2); }
DEVICE u32 amd_perm(u32 high, u32 low, u32 selector) {
    u64 bytes = (u64)high << 32 | low;
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        u32 s = selector >> 8 * i & 255u;
        if (s > 7u) shim::fail("v_perm_b32 with a selector above 7");
        r |= ((u32)(bytes >> 8 * s) & 255u) << 8 * i;
    }
    return r;
}
DEVICE i32 amd_dot4(i32 a, i32 b, i32 c) {
    for (int i = 0; i < 4; i++) c += (i32)(i8)(a >> 8 * i) * (i32)(i8)(b >> 8 * i);
    return c;
}
#if STRATA_WMMA
// Registers of A and B a lane, for elements of `bits` bits; gfx11 holds all 16 depths in both rows of lanes.
template <int regs, int bits, class Sum, class Term> DEVICE void shim_wmma(Sum (&c)[8], const u32 (&a)[regs], const u32 (&b)[regs], Term term) {
    constexpr u32 pack = 32 / bits, words_n = regs;
    u64 words[words_n];
    for (int r = 0; r < regs; r++) words[r] = (u64)b[r] << 32 | a[r];
    auto all = shim::show(shim::mma_, words);
    u32 l = thread_x() & 31u, col = l & 15u;
#if STRATA_WMMA == 11
    for (int r = 0; r < regs; r++)
        if (all[l ^ 16u][r] != words[r]) shim::fail("gfx11 WMMA: the upper 16 lanes must repeat the lower");
#endif
    for (u32 i = 0; i < 8; i++) {
        u32 row = STRATA_WMMA == 12 ? 8 * (l >> 4) + i : 2 * i + (l >> 4);
        term.start(c[i]);
        for (u32 k = 0; k < 16; k++) {
            u32 from = STRATA_WMMA == 12 ? 16 * (k >> 3) : 0, at = STRATA_WMMA == 12 ? k & 7u : k;
            u32 x = (u32)all[row + from][at / pack], y = (u32)(all[col + from][at / pack] >> 32);
            term.add(x >> bits * (at % pack), y >> bits * (at % pack));
        }
        c[i] = term.sum();
    }
}
struct ShimTermS8 {
    i32 s;
    void start(i32 c) { s = c; }
    void add(u32 x, u32 y) { s += (i32)(i8)x * (i32)(i8)y; }
    i32 sum() { return s; }
};
template <float (*value)(u16)> struct ShimTerm16 {
    double s;
    void start(f32 c) { s = c; }
    void add(u32 x, u32 y) { s += (double)value((u16)x) * value((u16)y); }
    f32 sum() { return (f32)s; }
};
constexpr int shim_s8_regs = STRATA_WMMA == 12 ? 2 : 4, shim_16_regs = STRATA_WMMA == 12 ? 4 : 8;
DEVICE void amd_wmma_s8(i32 (&c)[8], const u32 (&a)[shim_s8_regs], const u32 (&b)[shim_s8_regs]) {
    shim_wmma<shim_s8_regs, 8>(c, a, b, ShimTermS8{});
}
DEVICE void amd_wmma_f16(f32 (&c)[8], const u32 (&a)[shim_16_regs], const u32 (&b)[shim_16_regs]) {
    shim_wmma<shim_16_regs, 16>(c, a, b, ShimTerm16<shim::half_value>{});
}
DEVICE void amd_wmma_bf16(f32 (&c)[8], const u32 (&a)[shim_16_regs], const u32 (&b)[shim_16_regs]) {
    shim_wmma<shim_16_regs, 16>(c, a, b, ShimTerm16<shim::bf16_value>{});
}
#endif
#endif
