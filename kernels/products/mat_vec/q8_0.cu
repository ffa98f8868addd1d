#include "products/mat_vec.cuh"

MAT_VEC_ALL(Q8_0, q8_0)
