#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(IQ2_S, iq2_s)
