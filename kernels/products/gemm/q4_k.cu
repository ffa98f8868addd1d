// Products of Q4_K matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q4_k, Q4_K)
