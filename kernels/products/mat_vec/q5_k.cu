#include "products/mat_vec_matrix.cuh"
#include "products/mat_vec_split.cuh"

MAT_VEC_ROWS(Q5_K, q5_k)
MAT_VEC_MATRIX(Q5_K, q5_k)
MAT_VEC_SPLIT(Q5_K, q5_k)
