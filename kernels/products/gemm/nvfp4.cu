// Products of NVFP4 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(nvfp4, NVFP4)
