// Products of quantised weights with many tokens by dot products of four bytes: any device.
#include "products/gemm/kernels.cuh"

GEMM_FORMATS(dot, DotEngine)
