// Products of IQ2_XXS matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq2_xxs, IQ2_XXS)
