// Products of Q5_1 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q5_1, Q5_1)
