#include "products/mat_vec.cuh"

MAT_VEC_ALL(Q5_K, q5_k)
