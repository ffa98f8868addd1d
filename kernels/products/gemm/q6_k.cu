// Products of Q6_K matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q6_k, Q6_K)
