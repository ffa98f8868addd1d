#include "products/mat_vec.cuh"

MAT_VEC_ONE_ROW(IQ2_XS, iq2_xs)
