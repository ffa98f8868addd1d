#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(MXFP4, mxfp4)
