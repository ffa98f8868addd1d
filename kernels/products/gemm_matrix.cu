// Products of quantised weights with many tokens by matrix instructions.
#include "products/gemm/kernels.cuh"

#if STRATA_MATRIX
GEMM_FORMATS(matrix, MatrixEngine)
#endif
