// Products of Q8_0 matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(q8_0, Q8_0)
