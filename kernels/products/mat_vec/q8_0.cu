#include "products/mat_vec_split.cuh"

MAT_VEC_ROWS(Q8_0, q8_0)
MAT_VEC_SPLIT(Q8_0, q8_0)
