// Products of IQ4_NL matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq4_nl, IQ4_NL)
