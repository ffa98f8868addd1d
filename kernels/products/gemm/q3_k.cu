// Products of Q3_K matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q3_k, Q3_K)
