#include "products/mat_vec.cuh"

MAT_VEC_ALL(IQ2_XS, iq2_xs)
