// Products of IQ2_XS matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq2_xs, IQ2_XS)
