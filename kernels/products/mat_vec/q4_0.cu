#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(Q4_0, q4_0)
