#include "products/mat_vec.cuh"

MAT_VEC_ONE_ROW(Q4_0, q4_0)
