// Products of Q5_0 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q5_0, Q5_0)
