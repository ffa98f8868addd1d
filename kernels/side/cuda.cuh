// NVIDIA: NVRTC or nvcc. STRATA_SM is the compute capability times 10 (750, 800, ..., 900).
#pragma once
#define STRATA_CUDA 1
#define STRATA_HIP 0
#define STRATA_WMMA 0
#ifndef STRATA_SM
#define STRATA_SM (__CUDA_ARCH__)
#endif

#define DEVICE static __device__ __forceinline__
#define CONSTANT static __constant__ const
// A kernel for workgroups of exactly `threads`; the second form asks for `groups` resident workgroups a multiprocessor.
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define KERNEL_OCC(threads, groups) extern "C" __global__ void __launch_bounds__(threads, groups)
#define KERNEL_HELD(threads, groups, waves) KERNEL_OCC(threads, groups)
#define SHARED(type, name, dims) __shared__ __align__(16) type name dims
#define DYN_SHARED(type, name) extern __shared__ __align__(16) unsigned char strata_dyn_shared[]; type* name = (type*)strata_dyn_shared
#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

DEVICE u32 thread_x() { return threadIdx.x; }
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE u32 grid_x() { return gridDim.x; }
DEVICE u32 grid_y() { return gridDim.y; }

DEVICE u32 bits_of(f32 x) { return __float_as_uint(x); }
DEVICE f32 float_of_bits(u32 x) { return __uint_as_float(x); }
DEVICE f32 fma_(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
DEVICE f32 div_(f32 a, f32 b) { return __fdiv_rn(a, b); }
DEVICE f32 sqrt_(f32 a) { return __fsqrt_rn(a); }
DEVICE f32 rint_(f32 a) { return rintf(a); }
// The larger; a NaN is skipped.
DEVICE f32 max_(f32 a, f32 b) { return fmaxf(a, b); }
DEVICE i32 int_of_rounded(f32 a) { return __float2int_rn(a); }
DEVICE f32 float_of_int(i32 a) { return __int2float_rn(a); }
DEVICE f32 float_of_half(u16 h) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h)); return r; }
DEVICE u16 half_of_float(f32 x) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
// Sums of two pairs of halves.
DEVICE u32 half2_add(u32 a, u32 b) { u32 r; asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
DEVICE u32 popcount_(u32 x) { return (u32)__popc((int)x); }
DEVICE u32 leading_zeros(u32 x) { return (u32)__clz((int)x); }

DEVICE void barrier() { __syncthreads(); }
DEVICE void barrier_lds() { __syncthreads(); }
DEVICE void barrier_lds_loads() { __syncthreads(); }
DEVICE void wave_sync() { __syncwarp(); }
// The same number, of which the compiler knows nothing: what is computed from it inside a loop stays there.
DEVICE u32 hidden(u32 v) { asm volatile("" : "+r"(v)); return v; }

DEVICE u32 atomic_add_shared(u32* p, u32 v) { return atomicAdd(p, v); }
DEVICE u32 atomic_add_global(u32* p, u32 v) { return atomicAdd(p, v); }
DEVICE u32 atomic_max_shared(u32* p, u32 v) { return atomicMax(p, v); }

// A 16-byte read of data that is used once.
DEVICE U4 load_once(const U4* p) {
    U4 r;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
    return r;
}

// Copies 16 bytes from global to shared memory; complete after async_wait of its group and a barrier.
DEVICE void async_copy16(void* shared, const void* global) {
#if STRATA_SM >= 800
    u32 at = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
#else
    *(U4*)shared = *(const U4*)global;
#endif
}
DEVICE void async_commit() {
#if STRATA_SM >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `n` of this thread's groups are in flight.
template <int n> DEVICE void async_wait() {
#if STRATA_SM >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

DEVICE u32 nv_shfl_xor(u32 v, u32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE u32 nv_shfl(u32 v, u32 src) { return __shfl_sync(0xffffffffu, v, src); }
DEVICE u32 nv_shfl_up(u32 v, u32 by) { return __shfl_up_sync(0xffffffffu, v, by); }
DEVICE u32 nv_ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
DEVICE u32 nv_match_any(u32 v) { return __match_any_sync(0xffffffffu, v); }
DEVICE i32 nv_dp4a(i32 a, i32 b, i32 c) { return __dp4a(a, b, c); }
// Nibbles of the selector below 8 name bytes of a and b; the compiler's own function would mask them once more.
DEVICE u32 nv_byte_perm(u32 a, u32 b, u32 selector) { u32 r; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector)); return r; }
// Four 8 x 8 matrices of 16-bit elements from shared memory: lane l gives the address of row l % 8 of matrix l / 8 and takes
// elements (l / 4, 2 (l % 4)) and the next, or of the transposed matrices.
DEVICE void nv_ldmatrix4(u32 (&r)[4], const void* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
DEVICE void nv_ldmatrix4_transposed(u32 (&r)[4], const void* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// C[16][8] += A[16][32] B[32][8], signed bytes.
DEVICE void nv_mma_s8(i32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if STRATA_SM >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    UNROLL for (int half = 0; half < 2; half++) UNROLL for (int k = 0; k < 2; k++)
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(c[2 * half]), "+r"(c[2 * half + 1]) : "r"(a[half + 2 * k]), "r"(b[k]));
#endif
}
// C[16][8] += A[16][16] B[16][8], signed bytes.
DEVICE void nv_mma_s8_16(i32 (&c)[4], const u32 (&a)[2], u32 b) {
#if STRATA_SM >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
#else
    UNROLL for (int half = 0; half < 2; half++)
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(c[2 * half]), "+r"(c[2 * half + 1]) : "r"(a[half]), "r"(b));
#endif
}
// C[16][8] += A[16][16] B[16][8], halves with f32 sums.
DEVICE void nv_mma_f16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if STRATA_SM >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    UNROLL for (int k = 0; k < 2; k++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
#endif
}
#if STRATA_SM >= 800
// C[16][8] += A[16][16] B[16][8], bfloat16 with f32 sums.
DEVICE void nv_mma_bf16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// C[16][8] += A[16][8] B[8][8], tf32 with f32 sums.
DEVICE void nv_mma_tf32(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Rounds to the nearest tf32 (10 mantissa bits), ties away from zero.
DEVICE u32 nv_tf32(f32 x) { u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r; }
#endif
#if STRATA_SM >= 900
DEVICE u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// The halves of a barrier of the cluster: what was written before any thread's first half is seen after the second.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
// A first half that orders no memory accesses: nothing but "this thread is here".
DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// The address that `p`, a shared array of this workgroup, has in workgroup `rank` of the cluster.
template <class T> DEVICE T* cluster_shared(T* p, u32 rank) {
    u64 r;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(r) : "l"((u64)p), "r"(rank));
    return (T*)r;
}
#endif
