// Weight formats of the quantised products. A format tells, for a block at a Place: head() its scales (raw() as loaded, then
// opened()), scale4() and minimum4() those of part 4 j + q, codes() a part of 32
// codes in order (load() and decode() are its halves), scale() the integer factor of a part or of its halves (SUBS 0: none, 1: a part, 2: each 16 values) and, where
// MINIMA, minimum() or minima() (four packed) and dmin(); second_half() makes
// scale() of parts 0..3 that of parts 4..7. Sums of a block with codes times 2^SHIFT are shifted back by SHIFT, which is exact.
// A format with a TABLE wants that many words of shared memory with it; the others take none.
#pragma once
#include "products/formats/iq4.cuh"
#include "products/formats/iq_grid.cuh"
#include "products/formats/q4_0.cuh"
#include "products/formats/q4_k.cuh"
#include "products/formats/q5_k.cuh"
#include "products/formats/q6_k.cuh"
#include "products/formats/q8_0.cuh"

// Activations quantised by quantize.cu, for every row: codes i8[n_in], scales f32[n_in / width] where width is 32 or 256, and, for
// formats with minima, sums i32[n_in / 32] of 32 codes each.
