#include "products/mat_vec.cuh"

MAT_VEC_ALL(Q4_K, q4_k)
