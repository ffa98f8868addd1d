// Products of Q2_K matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q2_k, Q2_K)
