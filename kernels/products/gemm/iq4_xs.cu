// Products of IQ4_XS matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq4_xs, IQ4_XS)
