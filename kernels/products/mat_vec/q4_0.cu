#include "products/mat_vec_split.cuh"

MAT_VEC_ONE_ROW(Q4_0, q4_0)
MAT_VEC_SPLIT(Q4_0, q4_0)
