#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(Q5_0, q5_0)
