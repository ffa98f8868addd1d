#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(Q4_1, q4_1)
