#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(NVFP4, nvfp4)
