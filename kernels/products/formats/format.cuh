// What a weight format is to the products: BYTES of a block of WIDTH values (32 or 64, or 256: a wide one), cut in PARTS of 32, and
// CHAINS of a row. A format has, and a format file says no more than:
//  - Raw, what a thread loads of a block's scales: raw(place); Head, the same ready for use: opened(raw), with the scale in `d`.
//  - Part, what it loads of a part's codes: load(place, part); decode(part, .., w, table): its 32 codes as four signed bytes a word.
// The rest is for those that have it, and stands here as it is without.
#pragma once
#include "products/formats/layout.cuh"

struct Format {
    // Words of shared memory that decode() finds in `table` (products/tables.rs).
    static constexpr u32 TABLE = 0;
    // Integer sub-scales: none, one a part (1), one for 16 values (2). scale(head, part, half), and scale4(head, j, q, half) of part
    // 4 j + q, j known to the compiler. With PART_SCALES they lie beside the codes: part_scale(part).
    static constexpr int SUBS = 0;
    static constexpr bool PART_SCALES = false;
    // No code times its sub-scale exceeds a signed byte.
    static constexpr bool SMALL = false;
    // Codes are times 2^SHIFT, which is taken off their sum.
    static constexpr int SHIFT = 0;
    // Minima and their scale dmin(head). Of wide formats minimum(head, part), minimum4(head, j, q) as in scale4 and minima(head, i), those
    // of parts 4 i up in bytes; with MINIMA_16, one for 16 values, the first two take a half too and minima() those of parts 2 i
    // up. Of narrow formats a minimum is 1.
    static constexpr bool MINIMA = false, MINIMA_16 = false;
    // Floats that a block adds to a chain, each for as many values and with its own scale, term(head, i).
    static constexpr int TERMS = 1;
    template <class Head> static __device__ inline f32 term(const Head& h, int) { return h.d; }
};

// Activations quantised by quantize.cu, for every row: codes i8[n_in], scales f32[n_in / 256] for wide formats and f32[n_in / 32] for the
// others, and for formats with minima sums i32[n_in / 32] of 32 codes each, or with MINIMA_16 of two times 16 in the halves of a word.
