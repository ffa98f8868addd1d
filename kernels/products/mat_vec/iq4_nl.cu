#include "products/mat_vec.cuh"

MAT_VEC_ALL(IQ4_NL, iq4_nl)
