#include "products/mat_vec_split.cuh"

MAT_VEC_SPLIT(IQ3_XXS, iq3_xxs)
