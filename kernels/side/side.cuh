// The vocabulary of device code. A kernel includes this file and no vendor header.
//
// A side header gives each vendor's own instructions as functions (nv_*, amd_*), words.cuh builds the common words on
// them. The CPU shim implements both vendors' functions by their manuals, so the same words run there for either side.
#pragma once
#include "side/types.cuh"
#if defined(STRATA_SHIM)
#include "side/cpu.cuh"
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "side/cuda.cuh"
#else
#include "side/hip.cuh"
#endif
#include "side/words.cuh"
