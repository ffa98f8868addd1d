#include "products/mat_vec.cuh"

MAT_VEC_ALL(IQ3_S, iq3_s)
