#include "products/mat_vec.cuh"

MAT_VEC_ALL(IQ4_XS, iq4_xs)
