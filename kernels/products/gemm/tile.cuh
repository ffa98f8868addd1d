// A tile of a product of quantised weights with many tokens: the bits of NUMERICS.md section 2, walking K once from left to
// right with two floats an output, the chain being added to and the sum of the chains before it.
//
// A workgroup of WO x WT waves makes 32 WO rows for 32 WT tokens. A stage of 64 values of K is decoded to bytes in shared
// memory once for all its tokens, while the stage before it is multiplied. How sub-scales enter:
//  - one for 32 values (or none): the sum over 32 is multiplied and added in a register, one integer instruction an output
//    and matrix step. As planes (below) each step would be two matrix instructions instead of one, which costs more.
//  - one for 16 values: multiply-adds would need matrix steps half as deep and twice the integer work; so codes times
//    sub-scales go to shared memory as two planes of bytes, low + 256 * high, and two matrix instructions a step do all.
#pragma once
#include "products/formats.cuh"
#include "products/gemm/engine.cuh"

// Which items make a tile, and where their rows are.
struct GemmItems {
    const U4* tiles;      // (expert, first item, items, 0) for each workgroup in x; null: all `n` items of one matrix
    const u32* act_rows;  // the row of activations of an item; null: its number
    const u32* out_rows;  // the row of `y` of an item; null: its number
};
struct GemmActs {
    const i8* codes;    // [rows][cols]
    const f32* scales;  // [rows][cols / 32 or 256]
    const i32* sums;    // [rows][cols / 32]: of every 32 codes, for formats with minima
};

template <class F, class E, int WO, int WT> struct Gemm {
    static constexpr u32 THREADS = 32 * WO * WT, BO = 32 * WO, BT = 32 * WT;
    static constexpr bool WIDE = F::WIDTH == 256;
    static constexpr int PLANES = F::SUBS == 2 && !E::HALVES ? 2 : 1;
    static constexpr u32 BLOCK_STAGES = WIDE ? F::WIDTH / STAGE_DEPTH : 1;
    static constexpr int OS = E::OS, TS = E::TS;

    // Scales of one stage of a narrow format, or of one block of a wide one.
    struct Narrow {
        f32 w[STAGE_PARTS][BO], a[STAGE_PARTS][BT];
    };
    struct Wide {
        f32 w[BO], a[BT];
        i8 subs[BO][8 * (F::SUBS == 2 ? 2 : 1)];
    };
    struct Minima {
        f32 w[BO];
        U2 minima[BO], low[BT], high[BT];
    };
    struct alignas(16) Table {
        u32 words[F::TABLE ? F::TABLE : 1];
        __device__ inline const u32* at() const { return words; }
    };
    struct Nothing {
        __device__ inline const u32* at() const { return nullptr; }
    };
    template <bool c, class A, class B> struct Pick { typedef A type; };
    template <class A, class B> struct Pick<false, A, B> { typedef B type; };
    struct alignas(16) Shared {
        u8 weights[2][PLANES][BO * STAGE_DEPTH];
        u8 acts[2][BT * STAGE_DEPTH];
        u32 act_rows[BT];  // the row of activations of each token of the tile
        typename Pick<WIDE, Wide, Narrow>::type scales[2];
        typename Pick<F::MINIMA, Minima, Nothing>::type minima[2];
        typename Pick<F::TABLE != 0, Table, Nothing>::type table;
    };

    // What is constant in a workgroup or thread.
    struct Walk {
        const u8* matrix;
        GemmActs acts;
        u32 rows, blocks, stages, first_row;
        __device__ inline u32 row(u32 r) const { return smaller(first_row + r, rows - 1u); }
    };

    // The scales of weights of block s, and of activations: read two stages ahead of use.
    static __device__ inline void block_scales(Shared& m, const Walk& k, u32 s) {
        if constexpr (WIDE) {
            auto& to = m.scales[s & 1u];
            if (const u32 r = thread_x(); r < BO) {
                auto head = F::head(place_of<F>(k.matrix, k.row(r), k.blocks, s));
                to.w[r] = head.d;
                if constexpr (F::SUBS == 2) {
                    UNROLL for (int q = 0; q < 16; q++) to.subs[r][q] = (i8)F::scale(head, q >> 1, q & 1);
                } else {
                    UNROLL for (int q = 0; q < 8; q++) to.subs[r][q] = (i8)F::scale(head, q, 0);
                }
                if constexpr (F::MINIMA) {
                    m.minima[s & 1u].w[r] = F::dmin(head);
                    u32 v[2] = {0u, 0u};
                    UNROLL for (int q = 0; q < 8; q++) v[q >> 2] |= (u32)F::minimum(head, q) << 8 * (q & 3);
                    m.minima[s & 1u].minima[r] = U2{v[0], v[1]};
                }
            }
            if (const u32 t = thread_x(); t < BT) {
                u64 act = m.act_rows[t];
                to.a[t] = k.acts.scales[act * k.blocks + s];
                if constexpr (F::MINIMA) {
                    const i32* sums = k.acts.sums + (act * k.blocks + s) * 8u;
                    u32 low[2] = {0u, 0u}, high[2] = {0u, 0u};
                    UNROLL for (int q = 0; q < 8; q++) {
                        low[q >> 2] |= low_digit(sums[q]) << 8 * (q & 3);
                        high[q >> 2] |= high_digit(sums[q]) << 8 * (q & 3);
                    }
                    m.minima[s & 1u].low[t] = U2{low[0], low[1]};
                    m.minima[s & 1u].high[t] = U2{high[0], high[1]};
                }
            }
        }
    }
    // Starts copies of the activations of a stage.
    static __device__ inline void start_acts(Shared& m, const Walk& k, u32 stage) {
        const u32 cols = k.blocks * F::WIDTH;
        NO_UNROLL for (u32 u = thread_x(); u < BT * 4u; u += THREADS) {
            u32 t = u >> 2, chunk = u & 3u, at = stage * STAGE_DEPTH + 16u * chunk;
            u8* to = m.acts[stage & 1u] + stage_at(t, chunk);
            if (WIDE || at < cols) async_copy16(to, k.acts.codes + (u64)m.act_rows[t] * cols + at);
            else *(U4*)to = U4{0u, 0u, 0u, 0u};
        }
        async_commit();
    }
    // The weights this thread decodes in a stage: 32 values of one row for each of its units.
    static constexpr u32 UNITS = (BO * STAGE_PARTS + THREADS - 1) / THREADS;
    struct Fetched {
        typename F::Part w[UNITS];
        f32 d[UNITS], a;
    };
    static __device__ inline bool unit(u32 n, u32& row, u32& part) {
        u32 u = thread_x() + n * THREADS;
        row = u % BO, part = u / BO;
        return BO * STAGE_PARTS % THREADS == 0 || u < BO * STAGE_PARTS;
    }
    static __device__ inline void fetch(Fetched& f, const Shared& m, const Walk& k, u32 stage) {
        UNROLL for (u32 n = 0; n < UNITS; n++) {
            u32 row, part;
            bool mine = unit(n, row, part);
            u32 s = WIDE ? stage / BLOCK_STAGES : stage * STAGE_PARTS + part;
            if (!mine) continue;
            // beyond the last block its weights stand in, with the scale 0
            Place p = place_of<F>(k.matrix, k.row(row), k.blocks, smaller(s, k.blocks - 1u));
            f.w[n] = F::load(p, WIDE ? (int)(stage % BLOCK_STAGES * STAGE_PARTS + part) : 0);
            if constexpr (!WIDE) f.d[n] = s < k.blocks ? F::head(p).d : 0.0f;
        }
        if constexpr (!WIDE) {
            static_assert(STAGE_PARTS * BT <= THREADS, "one scale of activations a thread");
            u32 t = thread_x() % BT, s = stage * STAGE_PARTS + thread_x() / BT;
            f.a = thread_x() < STAGE_PARTS * BT && s < k.blocks ? k.acts.scales[(u64)m.act_rows[t] * k.blocks + s] : 0.0f;
        }
    }
    static __device__ inline void store(Shared& m, const Fetched& f, u32 stage) {
        UNROLL for (u32 n = 0; n < UNITS; n++) {
            u32 row, part;
            if (!unit(n, row, part)) continue;
            u32 w[8];
            F::decode(f.w[n], WIDE ? (int)(stage % BLOCK_STAGES * STAGE_PARTS + part) : 0, w, m.table.at());
            UNROLL for (int q = 0; q < 8; q++) w[q] = unshift<F::SHIFT>(w[q]);
            u8* to = m.weights[stage & 1u][0];
            if constexpr (PLANES == 2) {
                u32 s = stage / BLOCK_STAGES, at = 2u * (stage % BLOCK_STAGES * STAGE_PARTS + part);
                u32 high[8];
                UNROLL for (int q = 0; q < 8; q++) {
                    Planes p = planes(w[q], m.scales[s & 1u].subs[row][at + (q >> 2)]);
                    w[q] = p.low, high[q] = p.high;
                }
                u8* to_high = m.weights[stage & 1u][1];
                *(U4*)(to_high + stage_at(row, 2u * part)) = U4{high[0], high[1], high[2], high[3]};
                *(U4*)(to_high + stage_at(row, 2u * part + 1u)) = U4{high[4], high[5], high[6], high[7]};
            }
            *(U4*)(to + stage_at(row, 2u * part)) = U4{w[0], w[1], w[2], w[3]};
            *(U4*)(to + stage_at(row, 2u * part + 1u)) = U4{w[4], w[5], w[6], w[7]};
            if constexpr (!WIDE) m.scales[stage & 1u].w[part][row] = f.d[n];
        }
        if constexpr (!WIDE)
            if (thread_x() < STAGE_PARTS * BT) m.scales[stage & 1u].a[thread_x() / BT][thread_x() % BT] = f.a;
    }

    // The floats of a lane's outputs and where its chain ends.
    struct Sums {
        f32 chain[OS][TS], total[OS][TS];
#if STRATA_BROKEN == 2
        f32 late[OS][TS];
#endif
        u32 c, end;
    };
    // Called before block s is added.
    static __device__ inline void turn(Sums& y, u32 s, u32 blocks) {
        while (s >= y.end) {
#if STRATA_BROKEN == 1  // half as many chains, for the negative control: every second cut is missed
            if ((y.c++ & 1u) == 0u) {
                y.end = chain_start<F::CHAINS>(y.c + 1u, blocks);
                continue;
            }
            y.c--;
#elif STRATA_BROKEN == 2  // and another: chain 2 is added before chain 1
            UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) {
                if (y.c == 1u) y.late[i][j] = y.chain[i][j], y.chain[i][j] = -0.0f;
                if (y.c == 3u) y.total[i][j] = y.total[i][j] + y.late[i][j];
            }
#endif
            UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) {
                y.total[i][j] = y.total[i][j] + y.chain[i][j];
                y.chain[i][j] = 0.0f;
            }
            y.c++;
            y.end = y.c >= F::CHAINS ? ~0u : chain_start<F::CHAINS>(y.c + 1u, blocks);
        }
    }

    static __device__ inline void run(Shared& m, const u8* weights, i64 expert_bytes, const u32* table, GemmActs acts, GemmItems items, f32* RESTRICT out, u32 rows,
                                      u32 cols, u32 n) {
        U4 tile = items.tiles ? items.tiles[block_x()] : U4{0u, block_x() * BT, smaller(n - block_x() * BT, BT), 0u};
        Walk k;
        k.matrix = weights + (i64)tile.x * expert_bytes;
        k.acts = acts;
        k.rows = rows, k.blocks = cols / F::WIDTH, k.stages = (cols + STAGE_DEPTH - 1u) / STAGE_DEPTH;
        k.first_row = block_y() * BO;

        const u32 wave_o = wave() % WO * 32u, wave_t = wave() / WO * 32u;
        const u32 o_bytes = wave_o * STAGE_DEPTH, t_bytes = wave_t * STAGE_DEPTH;
        Sums y;
        UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) y.chain[i][j] = 0.0f, y.total[i][j] = 0.0f;
        y.c = 0, y.end = chain_start<F::CHAINS>(1u, k.blocks);
        i32 sum[WIDE ? PLANES : 1][OS][TS];
        constexpr i32 START = PLANES == 2 ? MAGIC_BITS : 0;
        UNROLL for (int p = 0; p < PLANES; p++) UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) sum[p][i][j] = START;

        if (const u32 t = thread_x(); t < BT) {
            u32 item = tile.y + smaller(t, tile.z - 1u);
            m.act_rows[t] = items.act_rows ? items.act_rows[item] : item;
        }
        if constexpr (F::TABLE != 0) {
            for (u32 q = thread_x(); q < F::TABLE; q += THREADS) m.table.words[q] = table[q];
        }
        barrier();
        Fetched f;
        block_scales(m, k, 0);
        start_acts(m, k, 0);
        fetch(f, m, k, 0);
        if constexpr (PLANES == 2) barrier();
        store(m, f, 0);
        async_wait<0>();
        barrier();
        NO_UNROLL for (u32 stage = 0; stage < k.stages; stage++) {
            const bool more = stage + 1u < k.stages;
            if (more) {
                start_acts(m, k, stage + 1u);
                fetch(f, m, k, stage + 1u);
            }
            if constexpr (WIDE)
                if (stage % BLOCK_STAGES == BLOCK_STAGES - 2u && stage + 2u < k.stages) block_scales(m, k, stage / BLOCK_STAGES + 1u);

            const u8* a = m.acts[stage & 1u] + t_bytes;
            const u8* w = m.weights[stage & 1u][0] + o_bytes;
            if constexpr (!WIDE) {
                UNROLL for (int part = 0; part < (int)STAGE_PARTS; part++) {
                    u32 s = stage * STAGE_PARTS + part;
                    turn(y, s, k.blocks);
                    f32 dw[OS], da[TS];
                    UNROLL for (int i = 0; i < OS; i++) dw[i] = m.scales[stage & 1u].w[part][wave_o + E::row_of(i)];
                    UNROLL for (int j = 0; j < TS; j++) da[j] = m.scales[stage & 1u].a[part][wave_t + E::token_of(j)];
                    E::part(w, a, part, [](int, int) { return MAGIC_BITS; }, [&](int i, int j, i32 c) {
                        y.chain[i][j] = fma_(dw[i] * da[j], float_of_bits((u32)c) - MAGIC_FLOAT, y.chain[i][j]);
                    });
                }
            } else {
                const u32 s = stage / BLOCK_STAGES;
                const auto& scales = m.scales[s & 1u];
                UNROLL for (int part = 0; part < (int)STAGE_PARTS; part++) {
                    if constexpr (PLANES == 2) {
                        const auto acts_of = E::load_acts(a, part);
                        UNROLL for (int p = 0; p < 2; p++)
                            E::multiply(E::load_weights(w + p * (BO * STAGE_DEPTH), part), acts_of, [&](int i, int j) { return sum[p][i][j]; },
                                        [&](int i, int j, i32 c) { sum[p][i][j] = c; });
                    } else if constexpr (F::SUBS == 2) {
                        UNROLL for (int half = 0; half < 2; half++) {
                            i32 sub[OS];
                            UNROLL for (int i = 0; i < OS; i++)
                                sub[i] = scales.subs[wave_o + E::row_of(i)][2u * (stage % BLOCK_STAGES * STAGE_PARTS + part) + half];
                            E::half(w, a, part, half, [&](int i, int j, i32 c) { sum[0][i][j] = multiply_add24(sub[i], c, sum[0][i][j]); });
                        }
                    } else {
                        i32 sub[OS];
                        UNROLL for (int i = 0; i < OS; i++) sub[i] = scales.subs[wave_o + E::row_of(i)][stage % BLOCK_STAGES * STAGE_PARTS + part];
                        E::part(w, a, part, [](int, int) { return 0; },
                                [&](int i, int j, i32 c) { sum[0][i][j] = multiply_add24(sub[i], c, sum[0][i][j]); });
                    }
                }
                if (stage % BLOCK_STAGES == BLOCK_STAGES - 1u) {
                    turn(y, s, k.blocks);
                    f32 dw[OS], da[TS];
                    UNROLL for (int i = 0; i < OS; i++) dw[i] = scales.w[wave_o + E::row_of(i)];
                    UNROLL for (int j = 0; j < TS; j++) da[j] = scales.a[wave_t + E::token_of(j)];
                    UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) {
                        f32 v;
                        if constexpr (PLANES == 2) {
                            // both planes are exact floats, so one FMA rounds their join once
                            v = fma_(256.0f, float_of_bits((u32)sum[PLANES - 1][i][j]) - MAGIC_FLOAT, float_of_bits((u32)sum[0][i][j]) - MAGIC_FLOAT);
                            sum[PLANES - 1][i][j] = START;
                        } else {
                            v = float_of_int(sum[0][i][j]);
                        }
                        sum[0][i][j] = START;
                        y.chain[i][j] = fma_(dw[i] * da[j], v, y.chain[i][j]);
                    }
                    if constexpr (F::MINIMA) {
                        const auto& least = m.minima[s & 1u];
                        f32 dm[OS];
                        UNROLL for (int i = 0; i < OS; i++) dm[i] = least.w[wave_o + E::row_of(i)];
                        E::minima(least.minima + wave_o, least.low + wave_t, least.high + wave_t, [&](int i, int j, i32 c) {
                            y.chain[i][j] = fma_(-(dm[i] * da[j]), float_of_bits((u32)c) - MAGIC_FLOAT, y.chain[i][j]);
                        });
                    }
                }
            }
            if (more) store(m, f, stage + 1u);
            async_wait<0>();
            barrier();
        }
        turn(y, k.blocks, k.blocks);
        UNROLL for (int j = 0; j < TS; j++) {
            u32 t = wave_t + E::token_of(j);
            if (t < tile.z) {
                u32 item = tile.y + t;
                f32* to = out + (u64)(items.out_rows ? items.out_rows[item] : item) * rows;
                UNROLL for (int i = 0; i < OS; i++) {
                    u32 o = k.first_row + wave_o + E::row_of(i);
                    if (o < rows) to[o] = y.total[i][j];
                }
            }
        }
    }
};
