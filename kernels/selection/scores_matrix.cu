// Block scorers on matrix instructions. Not exact, so opt-in; blocks n_bid are the exact tail kernel's.
//
// A workgroup takes 16 queries x 256 blocks. Queries are split once into parts in shared memory, keys as they are read.
// The products of parts go, smallest first, into two accumulators (large and small terms), which are added once at the end:
// with one accumulator the error against FP64 is five times as large.
#include "common/matrix.cuh"
#include "selection/scores.cuh"

#define MATRIX_BF16 (STRATA_MATRIX && (STRATA_HIP || STRATA_SM >= 800))
#define MATRIX_TF32 (STRATA_CUDA && STRATA_SM >= 800)

#if MATRIX_BF16
constexpr u32 QUERIES = 16, BLOCKS = 256;

// The end of a workgroup's blocks: none of its queries has more complete ones.
DEVICE i32 blocks_end(const StepRecord* RESTRICT records, i32 queries, i32 max_blocks) {
    i32 top = 0;
    UNROLL for (u32 i = 0; i < QUERIES; i++) {
        u32 row = block_x() * QUERIES + i;
        top = larger(top, records[row < (u32)queries ? row : (u32)queries - 1].n_bid);
    }
    return smaller(smaller(top, max_blocks), (i32)((block_y() + 1) * BLOCKS));
}
DEVICE void write_score(f32 s, u32 query, i32 block, const StepRecord* RESTRICT records, f32* RESTRICT scores, i32 max_blocks, i32 queries) {
    u32 row = block_x() * QUERIES + query;
    if (row < (u32)queries && block < max_blocks && block < records[row].n_bid) scores[(u64)row * (u32)max_blocks + block] = s;
}

// Three bf16 parts whose sum is the value: 8 significant bits each, by truncation.
struct Parts { u32 hi, mid, lo; };
DEVICE Parts parts_of(f32 x) {
    u32 hi = bits_of(x) & 0xffff0000u;
    f32 rest = x - float_of_bits(hi);
    u32 mid = bits_of(rest) & 0xffff0000u;
    return Parts{hi, mid, bits_of(rest - float_of_bits(mid)) & 0xffff0000u};
}
DEVICE u32 pair(u32 first, u32 second) { return first >> 16 | second; }

typedef u16 QueryParts[INDEX_HEADS][QUERIES][INDEX_DIM + 8];  // rows of 272 bytes: neighbours in other banks

KERNEL(128) qsa_scores_bf16(const f32* RESTRICT pooled, const f32* RESTRICT q, const StepRecord* RESTRICT records, f32* RESTRICT scores,
                            i32 max_blocks, i32 queries) {
    typedef Matrix16 X;
    constexpr int COLUMNS = QUERIES / X::N;
    DYN_SHARED(QueryParts, part);  // hi, mid, lo
    i32 end = blocks_end(records, queries, max_blocks), from = (i32)(block_y() * BLOCKS);
    if (from >= end) return;
    for (u32 i = thread_x(); i < QUERIES * QUERY_DIM / 2; i += 128) {
        u32 query = i / (QUERY_DIM / 2), head = i / (INDEX_DIM / 2) % INDEX_HEADS, dim = i % (INDEX_DIM / 2) * 2;
        u32 row = block_x() * QUERIES + query;
        const f32* p = q + (u64)(row < (u32)queries ? row : (u32)queries - 1) * QUERY_DIM + head * INDEX_DIM + dim;
        Parts a = parts_of(p[0]), b = parts_of(p[1]);
        *(u32*)&part[0][head][query][dim] = pair(a.hi, b.hi);
        *(u32*)&part[1][head][query][dim] = pair(a.mid, b.mid);
        *(u32*)&part[2][head][query][dim] = pair(a.lo, b.lo);
    }
    barrier();
    NO_UNROLL for (i32 tile = from; tile < end; tile += 4 * X::M) {
        i32 first = tile + (i32)wave() * X::M;
        const f32* key[X::A];
        UNROLL for (int r = 0; r < X::A; r++) {
            i32 b = first + (i32)X::a_row(r);
            key[r] = pooled + (u64)(b < end ? b : end - 1) * INDEX_DIM + X::a_depth(r);
        }
        f32 large[INDEX_HEADS][COLUMNS][X::C] = {}, small[INDEX_HEADS][COLUMNS][X::C] = {};
        NO_UNROLL for (u32 k = 0; k < INDEX_DIM; k += X::K) {
            u32 hi[X::A], mid[X::A], lo[X::A];
            UNROLL for (int r = 0; r < X::A; r++) {
                U2 two = *(const U2*)(key[r] + k);
                Parts a = parts_of(float_of_bits(two.x)), b = parts_of(float_of_bits(two.y));
                hi[r] = pair(a.hi, b.hi);
                mid[r] = pair(a.mid, b.mid);
                lo[r] = pair(a.lo, b.lo);
            }
            UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) UNROLL for (int c = 0; c < COLUMNS; c++) {
                u32 q_hi[X::B], q_mid[X::B], q_lo[X::B];
                UNROLL for (int r = 0; r < X::B; r++) {
                    u32 query = (u32)(c * X::N) + X::b_column(r), dim = k + X::b_depth(r);
                    q_hi[r] = *(const u32*)&part[0][h][query][dim];
                    q_mid[r] = *(const u32*)&part[1][h][query][dim];
                    q_lo[r] = *(const u32*)&part[2][h][query][dim];
                }
#if !defined(STRATA_BROKEN)
                X::multiply_bf16(small[h][c], lo, q_hi);
                X::multiply_bf16(small[h][c], hi, q_lo);
                X::multiply_bf16(small[h][c], mid, q_mid);
                X::multiply_bf16(small[h][c], hi, q_mid);
                X::multiply_bf16(small[h][c], mid, q_hi);
#endif
                X::multiply_bf16(large[h][c], hi, q_hi);
            }
        }
        UNROLL for (int c = 0; c < COLUMNS; c++) UNROLL for (int i = 0; i < X::C; i++) {
            f32 s = 0.0f;
            UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) s = s + relu(large[h][c][i] + small[h][c][i]);
            write_score(s, (u32)(c * X::N) + X::c_column(i), first + (i32)X::c_row(i), records, scores, max_blocks, queries);
        }
    }
}
#endif

#if MATRIX_TF32
// Two tf32 parts, to nearest. Depth 4t + e of 16 neighbouring ones is slot t (e even) or t + 4 of the step e / 2, for keys and
// queries alike: sixteen bytes of a lane are its share of two steps.
DEVICE void multiply_tf32(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    u32 b[2] = {b0, b1};
    nv_mma_tf32(c, a, b);
}
// Where group `g` of a query's 32 groups of four values is: odd queries' halves of 128 bytes are exchanged, for the banks.
DEVICE u32 group_of(u32 query, u32 g) { return g ^ (query & 1u) << 2; }

typedef U4 QueryGroups[INDEX_HEADS][QUERIES][INDEX_DIM / 4];

KERNEL_OCC(128, 2) qsa_scores_tf32(const f32* RESTRICT pooled, const f32* RESTRICT q, const StepRecord* RESTRICT records, f32* RESTRICT scores,
                                   i32 max_blocks, i32 queries) {
    DYN_SHARED(QueryGroups, part);  // hi, lo
    i32 end = blocks_end(records, queries, max_blocks), from = (i32)(block_y() * BLOCKS);
    if (from >= end) return;
    for (u32 i = thread_x(); i < QUERIES * QUERY_DIM / 4; i += 128) {
        u32 query = i / (QUERY_DIM / 4), head = i / (INDEX_DIM / 4) % INDEX_HEADS, g = i % (INDEX_DIM / 4);
        u32 row = block_x() * QUERIES + query;
        F4 v = load_f4(q + (u64)(row < (u32)queries ? row : (u32)queries - 1) * QUERY_DIM + head * INDEX_DIM + 4 * g);
        U4 hi = {nv_tf32(v.x), nv_tf32(v.y), nv_tf32(v.z), nv_tf32(v.w)};
        part[0][head][query][group_of(query, g)] = hi;
        part[1][head][query][group_of(query, g)] = U4{nv_tf32(v.x - float_of_bits(hi.x)), nv_tf32(v.y - float_of_bits(hi.y)),
                                                      nv_tf32(v.z - float_of_bits(hi.z)), nv_tf32(v.w - float_of_bits(hi.w))};
    }
    barrier();
    u32 t = lane() & 3u, r = lane() >> 2;
    NO_UNROLL for (i32 tile = from; tile < end; tile += 128) {
        i32 first = tile + (i32)wave() * 32;
        const f32* key[4];  // rows r, r + 8, r + 16, r + 24
        UNROLL for (int i = 0; i < 4; i++) {
            i32 b = first + (i32)r + 8 * i;
            key[i] = pooled + (u64)(b < end ? b : end - 1) * INDEX_DIM + 4 * t;
        }
        f32 large[INDEX_HEADS][2][2][4] = {}, small[INDEX_HEADS][2][2][4] = {};  // [head][16 keys][8 queries]
        NO_UNROLL for (u32 g = 0; g < INDEX_DIM / 4; g += 4) {
            u32 hi[2][2][4], lo[2][2][4];  // [16 keys][step]
            UNROLL for (int m = 0; m < 2; m++) UNROLL for (int half = 0; half < 2; half++) {
                F4 v = load_f4(key[2 * m + half] + 4 * g);
                f32 x[4] = {v.x, v.y, v.z, v.w};
                UNROLL for (int e = 0; e < 4; e++) {
                    u32 high = nv_tf32(x[e]);
                    hi[m][e >> 1][half + 2 * (e & 1)] = high;
                    lo[m][e >> 1][half + 2 * (e & 1)] = nv_tf32(x[e] - float_of_bits(high));
                }
            }
            UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) UNROLL for (int c = 0; c < 2; c++) {
                u32 query = 8 * (u32)c + r, at = group_of(query, g + t);
                U4 q_hi = part[0][h][query][at], q_lo = part[1][h][query][at];
                UNROLL for (int m = 0; m < 2; m++) {
#if !defined(STRATA_BROKEN)
                    multiply_tf32(small[h][m][c], lo[m][0], q_hi.x, q_hi.y);
                    multiply_tf32(small[h][m][c], lo[m][1], q_hi.z, q_hi.w);
                    multiply_tf32(small[h][m][c], hi[m][0], q_lo.x, q_lo.y);
                    multiply_tf32(small[h][m][c], hi[m][1], q_lo.z, q_lo.w);
#endif
                    multiply_tf32(large[h][m][c], hi[m][0], q_hi.x, q_hi.y);
                    multiply_tf32(large[h][m][c], hi[m][1], q_hi.z, q_hi.w);
                }
            }
        }
        UNROLL for (int m = 0; m < 2; m++) UNROLL for (int c = 0; c < 2; c++) UNROLL for (int i = 0; i < 4; i++) {
            f32 s = 0.0f;
            UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) s = s + relu(large[h][m][c][i] + small[h][m][c][i]);
            u32 query = 8 * (u32)c + 2 * t + (i & 1);
            write_score(s, query, first + 16 * m + (i32)r + 8 * (i >> 1), records, scores, max_blocks, queries);
        }
    }
}
#endif
