// Products of Q2_0 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q2_0, Q2_0)
