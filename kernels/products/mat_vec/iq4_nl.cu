#include "products/mat_vec.cuh"

MAT_VEC_ONE_ROW(IQ4_NL, iq4_nl)
