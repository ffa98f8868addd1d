// Products of IQ2_S matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq2_s, IQ2_S)
