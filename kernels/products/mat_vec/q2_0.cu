#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(Q2_0, q2_0)
