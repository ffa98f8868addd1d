#include "products/mat_vec_matrix.cuh"
#include "products/mat_vec_split.cuh"

MAT_VEC_ROWS(IQ4_XS, iq4_xs)
MAT_VEC_MATRIX(IQ4_XS, iq4_xs)
MAT_VEC_SPLIT(IQ4_XS, iq4_xs)
