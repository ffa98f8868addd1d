// Products of Q4_0 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q4_0, Q4_0)
