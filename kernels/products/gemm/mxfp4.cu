// Products of MXFP4 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(mxfp4, MXFP4)
