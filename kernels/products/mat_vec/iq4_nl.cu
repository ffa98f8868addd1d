#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(IQ4_NL, iq4_nl)
