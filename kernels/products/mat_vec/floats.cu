#include "products/mat_vec_float.cuh"

MAT_VEC_FLOAT_ALL(WeightF32, f32)
MAT_VEC_FLOAT_ALL(WeightF16, f16)
MAT_VEC_FLOAT_ALL(WeightBF16, bf16)
