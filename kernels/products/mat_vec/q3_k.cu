#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(Q3_K, q3_k)
