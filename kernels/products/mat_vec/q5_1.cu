#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(Q5_1, q5_1)
