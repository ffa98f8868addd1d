#include "products/mat_vec.cuh"

MAT_VEC_ONE_ROW(Q5_K, q5_k)
MAT_VEC_TWO_ROWS(Q5_K, q5_k)
