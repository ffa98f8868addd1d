#include "products/mat_vec.cuh"

MAT_VEC_ONE_ROW(IQ3_S, iq3_s)
