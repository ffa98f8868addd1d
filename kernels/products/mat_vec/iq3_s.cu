#include "products/mat_vec_split.cuh"

MAT_VEC_ONE_ROW(IQ3_S, iq3_s)
MAT_VEC_SPLIT(IQ3_S, iq3_s)
