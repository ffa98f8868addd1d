// Products of IQ1_S matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq1_s, IQ1_S)
