// Products of Q5_K matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q5_k, Q5_K)
