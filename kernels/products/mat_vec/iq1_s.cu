#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(IQ1_S, iq1_s)
