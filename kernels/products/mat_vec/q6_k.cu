#include "products/mat_vec.cuh"

MAT_VEC_ALL(Q6_K, q6_k)
