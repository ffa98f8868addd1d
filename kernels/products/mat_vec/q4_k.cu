#include "products/mat_vec_matrix.cuh"
#include "products/mat_vec_split.cuh"

MAT_VEC_ROWS(Q4_K, q4_k)
MAT_VEC_MATRIX(Q4_K, q4_k)
MAT_VEC_SPLIT(Q4_K, q4_k)
