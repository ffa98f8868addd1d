// Products of Q4_1 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q4_1, Q4_1)
