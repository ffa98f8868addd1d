// Products of IQ3_XXS matrices with many tokens.
#include "products/gemm/kernels.cuh"

GEMM_FORMAT(iq3_xxs, IQ3_XXS)
