// Products of IQ1_M matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq1_m, IQ1_M)
