#include "products/mat_vec.cuh"

MAT_VEC_ALL(Q4_0, q4_0)
