// AMD: clang for amdgcn, wave32. No header of the vendor's and no device library.
#pragma once
#define STRATA_CUDA 0
#define STRATA_HIP 1
#if defined(__GFX12__)
#define STRATA_WMMA 12
#elif defined(__GFX11__)
#define STRATA_WMMA 11
#else
#define STRATA_WMMA 0
#endif
// A SIMD's register file holds 1,536 registers a lane (RDNA4, the large parts of RDNA3), else 1,024.
#if defined(__GFX12__) || defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1151__)
#define STRATA_SMALL_FILE 0
#else
#define STRATA_SMALL_FILE 1
#endif

#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define CONSTANT static __attribute__((constant)) const
#define KERNEL(threads) extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void
#define KERNEL_OCC(threads, groups) KERNEL(threads)
// The same on NVIDIA; on AMD the compiler is to keep to registers for `waves` waves a SIMD where it can.
#define KERNEL_HELD(threads, groups, waves) extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(waves))) void
#define SHARED(type, name, dims) static __attribute__((shared, aligned(16))) type name dims
#define DYN_SHARED(type, name) extern __attribute__((shared, aligned(16))) unsigned char strata_dyn_shared[]; type* name = (type*)strata_dyn_shared
#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")

typedef int amd_i2 __attribute__((ext_vector_type(2)));
typedef int amd_i4 __attribute__((ext_vector_type(4)));
typedef int amd_i8 __attribute__((ext_vector_type(8)));
typedef float amd_f8 __attribute__((ext_vector_type(8)));
typedef unsigned amd_u4 __attribute__((ext_vector_type(4)));
typedef _Float16 amd_h8 __attribute__((ext_vector_type(8)));
typedef _Float16 amd_h16 __attribute__((ext_vector_type(16)));
typedef short amd_s8 __attribute__((ext_vector_type(8)));
typedef short amd_s16 __attribute__((ext_vector_type(16)));

DEVICE u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEVICE u32 grid_x() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
DEVICE u32 grid_y() { return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(); }

DEVICE u32 bits_of(f32 x) { return __builtin_bit_cast(u32, x); }
DEVICE f32 float_of_bits(u32 x) { return __builtin_bit_cast(f32, x); }
DEVICE f32 fma_(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEVICE f32 div_(f32 a, f32 b) { return a / b; }
DEVICE f32 sqrt_(f32 a) { return __builtin_elementwise_sqrt(a); }
DEVICE f32 rint_(f32 a) { return __builtin_rintf(a); }
// The larger; a NaN is skipped.
DEVICE f32 max_(f32 a, f32 b) { return __builtin_fmaxf(a, b); }
DEVICE i32 int_of_rounded(f32 a) { return (i32)__builtin_rintf(a); }
DEVICE f32 float_of_int(i32 a) { return (f32)a; }
DEVICE f32 float_of_half(u16 h) { return (f32)__builtin_bit_cast(_Float16, h); }
DEVICE u16 half_of_float(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }
DEVICE u32 popcount_(u32 x) { return (u32)__builtin_popcount(x); }
DEVICE u32 leading_zeros(u32 x) { return x ? (u32)__builtin_clz(x) : 32u; }

// Holds a cross-lane or matrix result where it is: compilers up to LLVM 20 may sink it below a divergent branch, where
// lanes that should take part are off.
#define AMD_PIN(r) asm volatile("" : "+v"(r))

DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Makes writes to shared memory seen in the workgroup without waiting for global memory.
DEVICE void barrier_lds() {
#if STRATA_WMMA == 12
    asm volatile("s_wait_dscnt 0x0\n\ts_barrier_signal -1\n\ts_barrier_wait -1" ::: "memory");
#else
    asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory");
#endif
}
// The same, and waits for this wave's global loads: for places where a load may have been skipped by some waves.
DEVICE void barrier_lds_loads() {
#if STRATA_WMMA == 12
    asm volatile("s_wait_loadcnt 0x0\n\ts_wait_dscnt 0x0\n\ts_barrier_signal -1\n\ts_barrier_wait -1" ::: "memory");
#else
    asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_barrier" ::: "memory");
#endif
}
DEVICE void wave_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
// The same number, of which the compiler knows nothing: what is computed from it inside a loop stays there.
DEVICE u32 hidden(u32 v) { asm volatile("" : "+v"(v)); return v; }

typedef __attribute__((address_space(3))) u32 amd_lds_u32;
DEVICE u32 atomic_add_shared(u32* p, u32 v) { return __hip_atomic_fetch_add((amd_lds_u32*)p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }
DEVICE u32 atomic_add_global(u32* p, u32 v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DEVICE u32 atomic_max_shared(u32* p, u32 v) { return __hip_atomic_fetch_max((amd_lds_u32*)p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }

DEVICE U4 load_once(const U4* p) {
    amd_u4 v = __builtin_nontemporal_load((const amd_u4*)p);
    return U4{v.x, v.y, v.z, v.w};
}

DEVICE void async_copy16(void* shared, const void* global) { *(U4*)shared = *(const U4*)global; }
DEVICE void async_commit() {}
template <int n> DEVICE void async_wait() {}

// row_xmask: the value of the lane whose number differs by `mask` (1..15), by DPP.
template <int mask> DEVICE u32 amd_dpp_xmask(u32 v) {
    int r = __builtin_amdgcn_mov_dpp((int)v, 0x160 | mask, 0xf, 0xf, true);
    AMD_PIN(r);
    return (u32)r;
}
// quad_perm: lane i of each four takes lane (selector >> 2i) & 3.
template <int selector> DEVICE u32 amd_quad_perm(u32 v) {
    int r = __builtin_amdgcn_mov_dpp((int)v, selector, 0xf, 0xf, true);
    AMD_PIN(r);
    return (u32)r;
}
// Lane i of a row of 16 takes the lane of the other row that the selector's nibble i names.
DEVICE u32 amd_permlanex16(u32 v, u32 low, u32 high) {
    u32 r = __builtin_amdgcn_permlanex16(v, v, low, high, false, false);
    AMD_PIN(r);
    return r;
}
// The same within the row.
DEVICE u32 amd_permlane16(u32 v, u32 low, u32 high) {
    u32 r = __builtin_amdgcn_permlane16(v, v, low, high, false, false);
    AMD_PIN(r);
    return r;
}
DEVICE u32 amd_bpermute(u32 byte_address, u32 v) {
    int r = __builtin_amdgcn_ds_bpermute((int)byte_address, (int)v);
    AMD_PIN(r);
    return (u32)r;
}
// The value of one lane, in a scalar register.
DEVICE u32 amd_readlane(u32 v, u32 src) { return (u32)__builtin_amdgcn_readlane((int)v, (int)src); }
DEVICE u32 amd_first_lane(u32 v) { return (u32)__builtin_amdgcn_readfirstlane((int)v); }
DEVICE u32 amd_ballot(bool p) { return __builtin_amdgcn_ballot_w32(p); }
// Selector bytes 0..3 take bytes of `low`, 4..7 of `high`.
DEVICE u32 amd_perm(u32 high, u32 low, u32 selector) { return __builtin_amdgcn_perm(high, low, selector); }
DEVICE i32 amd_dot4(i32 a, i32 b, i32 c) {
#if STRATA_WMMA
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
    return __builtin_amdgcn_sdot4(a, b, c, false);
#endif
}

#if STRATA_WMMA == 12
DEVICE void amd_wmma_s8(i32 (&c)[8], const u32 (&a)[2], const u32 (&b)[2]) {
    amd_i8 v = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    v = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, amd_i2{(int)a[0], (int)a[1]}, true, amd_i2{(int)b[0], (int)b[1]}, v, false);
    AMD_PIN(v);
    UNROLL for (int i = 0; i < 8; i++) c[i] = v[i];
}
DEVICE void amd_wmma_f16(f32 (&c)[8], const u32 (&a)[4], const u32 (&b)[4]) {
    amd_f8 v = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    v = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(amd_h8, a), __builtin_bit_cast(amd_h8, b), v);
    AMD_PIN(v);
    UNROLL for (int i = 0; i < 8; i++) c[i] = v[i];
}
DEVICE void amd_wmma_bf16(f32 (&c)[8], const u32 (&a)[4], const u32 (&b)[4]) {
    amd_f8 v = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    v = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(amd_s8, a), __builtin_bit_cast(amd_s8, b), v);
    AMD_PIN(v);
    UNROLL for (int i = 0; i < 8; i++) c[i] = v[i];
}
#elif STRATA_WMMA == 11
DEVICE void amd_wmma_s8(i32 (&c)[8], const u32 (&a)[4], const u32 (&b)[4]) {
    amd_i8 v = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    amd_i4 x = {(int)a[0], (int)a[1], (int)a[2], (int)a[3]}, y = {(int)b[0], (int)b[1], (int)b[2], (int)b[3]};
    v = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, x, true, y, v, false);
    AMD_PIN(v);
    UNROLL for (int i = 0; i < 8; i++) c[i] = v[i];
}
DEVICE void amd_wmma_f16(f32 (&c)[8], const u32 (&a)[8], const u32 (&b)[8]) {
    amd_f8 v = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    v = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(amd_h16, a), __builtin_bit_cast(amd_h16, b), v);
    AMD_PIN(v);
    UNROLL for (int i = 0; i < 8; i++) c[i] = v[i];
}
DEVICE void amd_wmma_bf16(f32 (&c)[8], const u32 (&a)[8], const u32 (&b)[8]) {
    amd_f8 v = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    v = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(amd_s16, a), __builtin_bit_cast(amd_s16, b), v);
    AMD_PIN(v);
    UNROLL for (int i = 0; i < 8; i++) c[i] = v[i];
}
#endif
