#include "products/mat_vec_matrix.cuh"
#include "products/mat_vec_split.cuh"

MAT_VEC_ROWS(Q6_K, q6_k)
MAT_VEC_MATRIX(Q6_K, q6_k)
MAT_VEC_SPLIT(Q6_K, q6_k)
