// The smallest kernel: it compiles wherever a compiler works at all.
#if defined(__CUDACC__)
#define PROBE_KERNEL extern "C" __global__ void
#define PROBE_LANE threadIdx.x
#else
#define PROBE_KERNEL extern "C" __attribute__((global)) void
#define PROBE_LANE __builtin_amdgcn_workitem_id_x()
#endif

#if defined(STRATA_PROBE_BREAKS)
#error "broken on purpose"
#endif

PROBE_KERNEL strata_probe(unsigned* out) {
    out[PROBE_LANE] = PROBE_LANE * 3u + 1u;
}
