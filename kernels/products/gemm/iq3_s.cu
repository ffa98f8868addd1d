// Products of IQ3_S matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq3_s, IQ3_S)
