// A tile of a product of quantised weights with many tokens: the bits of NUMERICS.md section 2, walking K once from left to
// right with two floats an output, the chain being added to and the sum of the chains before it.
//
// A workgroup of WO x WT waves makes 32 WO rows for 32 WT tokens. A stage of 64 or 128 values of K is decoded to bytes in shared
// memory once for all its tokens, while the stage before it is multiplied; a thread decodes parts of one row and walks that row's
// blocks without a division (Source). How sub-scales enter:
//  - one for 32 values (or none): the sum over 32 is multiplied and added in a register, one integer instruction an output
//    and matrix step. As planes (below) each step would be two matrix instructions instead of one, which costs more.
//  - one for 16 values: multiply-adds would need matrix steps half as deep and twice the integer work; so codes times
//    sub-scales go to shared memory as two planes of bytes, low + 256 * high. The sum of a step's high plane times 256 is added
//    to the sum from which the low plane's step starts. Where products fit a byte there is no high plane.
#pragma once
#include "products/formats.cuh"
#include "products/gemm/engine.cuh"
#include "products/gemm/source.cuh"

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
    static constexpr u32 STAGE_DEPTH = E::DEPTH, STAGE_PARTS = STAGE_DEPTH / 32;
    static constexpr bool WIDE = F::WIDTH == 256;
    // Sub-scales enter when weights are decoded.
    static constexpr bool SCALED = F::SUBS == 2 && (F::SMALL || !E::HALVES);
    static constexpr int PLANES = SCALED && !F::SMALL ? 2 : 1;
    static constexpr u32 BLOCK_PARTS = F::PARTS, PART_TERMS = F::TERMS == 2 * F::PARTS ? 2 : 1;
    static constexpr bool HEADS_COPIED = WIDE && F::MINIMA && sizeof(typename F::Raw) == 16;  // heads go to shared memory as they are
    static constexpr u32 BLOCK_STAGES = WIDE ? F::WIDTH / STAGE_DEPTH : 1;
    static constexpr int OS = E::OS, TS = E::TS;

    // Matrix tiles of an NVIDIA GPU have 168 registers a lane: where three numbers an output would be held, some of the totals,
    // which change least often, lie in shared memory.
    static constexpr int STORED = !STRATA_CUDA || THREADS == 256u ? 0 : PART_TERMS == 2 ? 1 : !WIDE || SCALED ? 0 : STAGE_DEPTH == 128u && !F::MINIMA ? 2 : 1;

    // Where numbers of row r or token t of the tile are stored, in slots of their wave's 32.
    static __device__ inline u32 row_slot(u32 r) { return (r & ~31u) + E::row_slot(r & 31u); }
    static __device__ inline u32 token_slot(u32 t) { return (t & ~31u) + E::token_slot(t & 31u); }
    // A lane's numbers, which lie together.
    template <class T, int N> static __device__ inline void numbers(T (&to)[N], const T* from) {
        if constexpr (N % 4 == 0) {
            UNROLL for (int v = 0; v < N; v += 4) {
                const U4 x = *(const U4*)(from + v);
                to[v] = from_bits<T>(x.x), to[v + 1] = from_bits<T>(x.y), to[v + 2] = from_bits<T>(x.z), to[v + 3] = from_bits<T>(x.w);
            }
        } else {
            UNROLL for (int v = 0; v < N; v++) to[v] = from[v];
        }
    }

    // Scales of one stage of a narrow format, or of one block of a wide one, in slots. Sub-scales that enter when weights are
    // decoded lie row by row.
    struct alignas(16) Narrow {
        f32 w[STAGE_PARTS * PART_TERMS][BO], a[STAGE_PARTS][BT];
    };
    struct alignas(16) Offsets {  // of narrow formats, which have no minima but 1
        f32 w[STAGE_PARTS][BO], sums[STAGE_PARTS][BT];
    };
    static constexpr int SUBS = F::SUBS == 2 ? 16 : 8;
    struct alignas(16) Wide {
        f32 w[BO], a[BT];
        i32 subs[SUBS][BO];
    };
    struct alignas(16) WidePlanes {
        f32 w[BO], a[BT];
        i8 subs[BO][16];
    };
    template <bool c, class A, class B> struct Pick { typedef A type; };
    template <class A, class B> struct Pick<false, A, B> { typedef B type; };
    // Minima of a row and digits of the sums of a token, a byte each.
    typedef typename Pick<F::MINIMA_16, U4, U2>::type Bytes;
    struct alignas(16) Minima {
        f32 w[BO];
        Bytes minima[BO], low[BT], high[BT];
    };
    // Heads and sums as they lie in memory, which the thread that copies them reads a stage later.
    struct alignas(16) Copies {
        U4 heads[HEADS_COPIED ? BO : 1], sums[2 * BT];
    };
    struct alignas(16) Table {
        u32 words[F::TABLE ? F::TABLE : 1];
        __device__ inline const u32* at() const { return words; }
    };
    struct Totals {
        F4 of[STORED > 0 ? STORED * TS / 4 : 1][THREADS];
    };
    struct Nothing {
        __device__ inline const u32* at() const { return nullptr; }
    };
    struct alignas(16) Shared {
        u8 weights[2][PLANES][BO * STAGE_DEPTH];
        u8 acts[2][BT * STAGE_DEPTH];
        U4 tile;           // as in GemmItems
        const u8* matrix;  // of the tile's expert
        u32 rows[BO];      // the row of weights of each row of the tile
        u32 act_rows[BT];  // the row of activations of each token
        typename Pick<WIDE, typename Pick<SCALED, WidePlanes, Wide>::type, Narrow>::type scales[2];
        typename Pick<F::MINIMA, typename Pick<WIDE, Minima, Offsets>::type, Nothing>::type minima[2];
        typename Pick<WIDE && F::MINIMA, Copies, Nothing>::type copies;
        typename Pick<F::TABLE != 0, Table, Nothing>::type table;
        typename Pick<(STORED > 0), Totals, Nothing>::type totals;
    };

    // What is constant in a workgroup.
    struct Walk {
        GemmActs acts;
        u32 blocks, stages;
    };

    // A thread decodes parts of one row: of a stage, every STEP-th from its first on. Threads beyond have none.
    static constexpr u32 STEP = THREADS / BO < STAGE_PARTS ? THREADS / BO : STAGE_PARTS, UNITS = STAGE_PARTS / STEP;
    static_assert(THREADS % BO == 0 && STAGE_PARTS % STEP == 0, "whole rows of threads");
    struct Unit {
        u32 row, part;
        bool any;
    };
    // Computed anew where it is wanted: it costs less than registers held along the walk.
    static __device__ inline Unit unit() {
        const u32 t = hidden(thread_x());
        return Unit{t % BO, t / BO, THREADS == BO * STEP || t < BO * STEP};
    }
    static __device__ inline int part_of(u32 stage, u32 part) { return (int)(stage % BLOCK_STAGES * STAGE_PARTS + part); }
    // A wide format's scales of a block are read and stored two stages before its own. Rows by the first threads, tokens by the
    // last, two threads a token.
    static constexpr u32 FIRST_TOKEN = THREADS - 2u * BT;

    // What a thread has read of a stage of weights, and of the scales of the next block.
    struct Fetched {
        typename F::Part w[UNITS];
        typename F::Raw d[UNITS];  // narrow formats: opened when stored, so that nobody waits for it before
        f32 a[STAGE_PARTS];
        i32 sums[STAGE_PARTS];  // for their offsets
    };
    struct Heads {
        typename Pick<HEADS_COPIED, Nothing, typename F::Raw>::type w;
        f32 a;
    };

    static __device__ inline void fetch_heads(Heads& h, Shared& m, const Walk& k, const Source<F>& from, bool next, u32 s) {
        if (thread_x() < BO) {
            const u32 row = m.rows[thread_x()];
            const Place p = next ? from.next(m.matrix, row) : from.place(m.matrix, row);
            if constexpr (HEADS_COPIED) async_copy16(&m.copies.heads[thread_x()], F::raw_at(p));
            else h.w = F::raw(p);
        }
        if (thread_x() >= FIRST_TOKEN) {
            const u32 u = thread_x() - FIRST_TOKEN, act = m.act_rows[u >> 1];
            const u64 at = (u64)act * k.blocks + s;
            h.a = k.acts.scales[at];
            if constexpr (F::MINIMA) async_copy16(&m.copies.sums[u], k.acts.sums + at * 8u + 4u * (u & 1u));
        }
        if constexpr (F::MINIMA) async_commit();
    }
    static __device__ inline void store_heads(Shared& m, const Heads& h, u32 s) {
        auto& to = m.scales[s & 1u];
        if (const u32 r = thread_x(); r < BO) {
            typename F::Raw raw;
            if constexpr (HEADS_COPIED) raw = m.copies.heads[r];
            else raw = h.w;
            const auto head = F::opened(raw);
            const u32 slot = row_slot(r);
            to.w[slot] = head.d;
            if constexpr (!F::PART_SCALES) {
                UNROLL for (int q = 0; q < SUBS; q++) {
                    const i32 sub = F::scale(head, q * 8 / SUBS, q % (SUBS / 8));
                    if constexpr (SCALED) to.subs[r][q] = (i8)sub;
                    else to.subs[q][slot] = sub;
                }
            }
            if constexpr (F::MINIMA) {
                m.minima[s & 1u].w[slot] = F::dmin(head);
                if constexpr (F::MINIMA_16) m.minima[s & 1u].minima[r] = U4{F::minima(head, 0), F::minima(head, 1), F::minima(head, 2), F::minima(head, 3)};
                else m.minima[s & 1u].minima[r] = U2{F::minima(head, 0), F::minima(head, 1)};
            }
        }
        if (thread_x() >= FIRST_TOKEN) {
            const u32 u = thread_x() - FIRST_TOKEN;
            to.a[token_slot(u >> 1)] = h.a;
            if constexpr (F::MINIMA) {
                const U4 sums = m.copies.sums[u];
                const i32 v[4] = {(i32)sums.x, (i32)sums.y, (i32)sums.z, (i32)sums.w};
                if constexpr (F::MINIMA_16) {
                    U2 low = {0, 0}, high = {0, 0};
                    UNROLL for (int q = 0; q < 2; q++) UNROLL for (int half = 0; half < 2; half++) {
                        const i32 first = half ? v[q] >> 16 : (i32)(i16)v[q], second = half ? v[q + 2] >> 16 : (i32)(i16)v[q + 2];
                        low.x |= low_digit(first) << (16 * q + 8 * half), high.x |= high_digit(first) << (16 * q + 8 * half);
                        low.y |= low_digit(second) << (16 * q + 8 * half), high.y |= high_digit(second) << (16 * q + 8 * half);
                    }
                    ((U2*)m.minima[s & 1u].low)[u] = low;
                    ((U2*)m.minima[s & 1u].high)[u] = high;
                } else {
                    u32 low = 0, high = 0;
                    UNROLL for (int q = 0; q < 4; q++) low |= low_digit(v[q]) << 8 * q, high |= high_digit(v[q]) << 8 * q;
                    ((u32*)m.minima[s & 1u].low)[u] = low;
                    ((u32*)m.minima[s & 1u].high)[u] = high;
                }
            }
        }
    }
    // Starts copies of the activations of a stage: a chunk of 16 bytes of every COPIED-th token a thread, so that all its places
    // are at constant distances.
    static constexpr u32 CHUNKS = STAGE_DEPTH / 16u, COPIERS = THREADS >= 256u ? 256u : 128u, COPIED = COPIERS / CHUNKS;
    static __device__ inline void start_acts(Shared& m, const Walk& k, u32 stage) {
        const u32 cols = k.blocks * F::WIDTH, t = thread_x() / CHUNKS, chunk = thread_x() % CHUNKS, at = stage * STAGE_DEPTH + 16u * chunk;
        if (THREADS == COPIERS || thread_x() < COPIERS) {
            u8* to = m.acts[stage & 1u] + stage_at<STAGE_DEPTH>(t, chunk);
            const i8* from = k.acts.codes + at;
            UNROLL for (u32 n = 0; n < (BT + COPIED - 1u) / COPIED; n++) {
                if (BT % COPIED != 0 && t + COPIED * n >= BT) continue;
                if (WIDE || at < cols) async_copy16(to + COPIED * n * STAGE_DEPTH, from + (u64)m.act_rows[t + COPIED * n] * cols);
                else *(U4*)(to + COPIED * n * STAGE_DEPTH) = U4{0u, 0u, 0u, 0u};
            }
        }
        async_commit();
    }
    // Reads a stage of weights. Beyond the last block its weights stand in, with the scale 0.
    static __device__ inline void fetch(Fetched& f, const Shared& m, const Walk& k, Source<F>& from, u32 stage) {
        if (const Unit u = unit(); u.any) {
            UNROLL for (u32 n = 0; n < UNITS; n++) {
                const u32 part = u.part + n * STEP;
                if constexpr (!WIDE) from.go_to((stage * STAGE_PARTS + part) / BLOCK_PARTS);
                const Place p = from.place(m.matrix, m.rows[u.row]);
                f.w[n] = F::load(p, WIDE ? part_of(stage, part) : (int)(part % BLOCK_PARTS));
                if constexpr (!WIDE) {
                    f.d[n] = typename F::Raw{};
                    if (!from.ended) f.d[n] = F::raw(p);
                }
            }
        }
        if constexpr (!WIDE) {
            if (const u32 thread = thread_x(); thread >= THREADS - BT) {
                const u32 s = stage * STAGE_PARTS;
                const u64 at = (u64)m.act_rows[thread - (THREADS - BT)] * (k.blocks * BLOCK_PARTS) + s;
                UNROLL for (u32 n = 0; n < STAGE_PARTS; n++) {
                    const bool any = s + n < k.blocks * BLOCK_PARTS;
                    f.a[n] = any ? (k.acts.scales + at)[n] : 0.0f;
                    if constexpr (F::MINIMA) f.sums[n] = any ? (k.acts.sums + at)[n] : 0;
                }
            }
        }
    }
    static __device__ inline void store(Shared& m, const Fetched& f, u32 stage) {
        if (const Unit u = unit(); u.any) {
            const u32 row = u.row;
            u8* to = m.weights[stage & 1u][0];
            UNROLL for (u32 n = 0; n < UNITS; n++) {
                const u32 part = u.part + n * STEP;
                u32 w[8];
                F::decode(f.w[n], WIDE ? part_of(stage, part) : 0, w, m.table.at());
                UNROLL for (int q = 0; q < 8; q++) w[q] = unshift<F::SHIFT>(w[q]);
                const u32 at[2] = {stage_at<STAGE_DEPTH>(row, 2u * part), stage_at<STAGE_DEPTH>(row, 2u * part + 1u)};
                if constexpr (SCALED && PLANES == 1) {
                    const i8* subs = m.scales[stage / BLOCK_STAGES & 1u].subs[row] + 2 * part_of(stage, part);
                    UNROLL for (int q = 0; q < 8; q++) w[q] = w[q] * (u32)subs[q >> 2];  // no byte overflows
                } else if constexpr (PLANES == 2) {
                    const i8* subs = m.scales[stage / BLOCK_STAGES & 1u].subs[row] + 2 * part_of(stage, part);
                    u32 high[8];
                    UNROLL for (int q = 0; q < 8; q++) {
                        Planes p = planes(w[q], subs[q >> 2]);
                        w[q] = p.low, high[q] = p.high;
                    }
                    u8* to_high = m.weights[stage & 1u][1];
                    UNROLL for (int h = 0; h < 2; h++) *(U4*)(to_high + at[h]) = U4{high[4 * h], high[4 * h + 1], high[4 * h + 2], high[4 * h + 3]};
                }
                UNROLL for (int h = 0; h < 2; h++) *(U4*)(to + at[h]) = U4{w[4 * h], w[4 * h + 1], w[4 * h + 2], w[4 * h + 3]};
                if constexpr (F::PART_SCALES)
                    m.scales[stage / BLOCK_STAGES & 1u].subs[part_of(stage, part)][row_slot(row)] = F::part_scale(f.w[n]);
                if constexpr (!WIDE) {
                    const auto head = F::opened(f.d[n]);
                    UNROLL for (u32 h = 0; h < PART_TERMS; h++)
                        m.scales[stage & 1u].w[part * PART_TERMS + h][row_slot(row)] = F::term(head, (int)(part % BLOCK_PARTS * PART_TERMS + h));
                    if constexpr (F::MINIMA) m.minima[stage & 1u].w[part][row_slot(row)] = -F::dmin(head);
                }
            }
        }
        if constexpr (!WIDE) {
            if (const u32 thread = thread_x(); thread >= THREADS - BT) {
                const u32 slot = token_slot(thread - (THREADS - BT));
                UNROLL for (u32 n = 0; n < STAGE_PARTS; n++) {
                    m.scales[stage & 1u].a[n][slot] = f.a[n];
                    if constexpr (F::MINIMA) m.minima[stage & 1u].sums[n][slot] = float_of_int(f.sums[n]);
                }
            }
        }
    }

    // The floats of a lane's outputs and where its chain ends. Totals of outputs with i < STORED lie in shared memory.
    struct Sums {
        f32 chain[OS][TS], total[OS - STORED][TS];
#if STRATA_BROKEN == 2
        f32 late[OS][TS];
#endif
        u32 c, end;
    };
    static __device__ inline void add_to_totals(Shared& m, Sums& y, const f32 (&v)[OS][TS]) {
        if constexpr (STORED > 0) {
            UNROLL for (int i = 0; i < STORED; i++) UNROLL for (int j = 0; j < TS; j += 4) {
                F4& to = m.totals.of[i * (TS / 4) + j / 4][thread_x()];
                const F4 t = to;
                to = F4{t.x + v[i][j], t.y + v[i][j + 1], t.z + v[i][j + 2], t.w + v[i][j + 3]};
            }
        }
        UNROLL for (int i = STORED; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) y.total[i - STORED][j] = y.total[i - STORED][j] + v[i][j];
    }
    static __device__ inline f32 total_of(const Shared& m, const Sums& y, int i, int j) {
        if constexpr (STORED > 0)
            if (i < STORED) return ((const f32*)&m.totals.of[i * (TS / 4) + j / 4][thread_x()])[j % 4];
        return y.total[i < STORED ? 0 : i - STORED][j];
    }
    // Called before block s is added.
    static __device__ inline void turn(Shared& m, Sums& y, u32 s, u32 blocks) {
        while (s >= y.end) {
#if STRATA_BROKEN == 1  // half as many chains, for the negative control: every second cut is missed
            if ((y.c++ & 1u) == 0u) {
                y.end = chain_start<F::CHAINS>(y.c + 1u, blocks);
                continue;
            }
            y.c--;
#elif STRATA_BROKEN == 2  // and another: chain 2 is added before chain 1
            UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++)
                if (y.c == 1u) y.late[i][j] = y.chain[i][j], y.chain[i][j] = -0.0f;
            if (y.c == 3u) add_to_totals(m, y, y.late);
#endif
            add_to_totals(m, y, y.chain);
            UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) y.chain[i][j] = 0.0f;
            y.c++;
            y.end = y.c >= F::CHAINS ? ~0u : chain_start<F::CHAINS>(y.c + 1u, blocks);
        }
    }

    static __device__ inline void run(Shared& m, const u8* weights, i64 expert_bytes, const u32* table, GemmActs acts, GemmItems items,
                                      f32* RESTRICT out, u32 rows, u32 cols, u32 n) {
        U4 tile = items.tiles ? items.tiles[block_x()] : U4{0u, block_x() * BT, smaller(n - block_x() * BT, BT), 0u};
        const Walk k = {acts, cols / F::WIDTH, (cols + STAGE_DEPTH - 1u) / STAGE_DEPTH};
        const u32 first_row = block_y() * BO;
        Source<F> from(k.blocks);

        const u32 wave_o = wave() % WO * 32u, wave_t = wave() / WO * 32u;
        const u32 row_slots = wave_o + E::first_row_slot(), token_slots = wave_t + E::first_token_slot();
        const u32 o_bytes = wave_o * STAGE_DEPTH, t_bytes = wave_t * STAGE_DEPTH;
        Sums y;
        UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) y.chain[i][j] = 0.0f;
        UNROLL for (int i = STORED; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) y.total[i - STORED][j] = 0.0f;
        if constexpr (STORED > 0) {
            UNROLL for (int v = 0; v < STORED * TS / 4; v++) m.totals.of[v][thread_x()] = F4{0.0f, 0.0f, 0.0f, 0.0f};
        }
        y.c = 0, y.end = chain_start<F::CHAINS>(1u, k.blocks);
        i32 sum[OS][TS] = {};

        if (const u32 t = thread_x(); t < BT) {
            u32 item = tile.y + smaller(t, tile.z - 1u);
            m.act_rows[t] = items.act_rows ? items.act_rows[item] : item;
        }
        if (const u32 r = thread_x(); r < BO) m.rows[r] = smaller(first_row + r, rows - 1u);
        if (thread_x() == 0u) m.tile = tile, m.matrix = weights + (i64)tile.x * expert_bytes;
        if constexpr (F::TABLE != 0) {
            for (u32 q = thread_x(); q < F::TABLE; q += THREADS) m.table.words[q] = table[q];
        }
        barrier();
        Fetched f;
        Heads heads;
        if constexpr (WIDE) {
            fetch_heads(heads, m, k, from, false, 0);
            async_wait<0>();
            store_heads(m, heads, 0);
        }
        start_acts(m, k, 0);
        fetch(f, m, k, from, 0);
        if constexpr (SCALED) barrier();
        store(m, f, 0);
        async_wait<0>();
        barrier();
        NO_UNROLL for (u32 stage = 0; stage < k.stages; stage++) {
            const bool more = stage + 1u < k.stages;
            // the block after this stage's: its scales are wanted when its first stage is decoded
            const bool turns = WIDE && stage % BLOCK_STAGES == BLOCK_STAGES - 2u && stage + 2u < k.stages;
            if (more) {
                start_acts(m, k, stage + 1u);
                if constexpr (WIDE)
                    if (stage % BLOCK_STAGES == BLOCK_STAGES - 1u) from.go_to(stage / BLOCK_STAGES + 1u);
                fetch(f, m, k, from, stage + 1u);
            }
            if constexpr (WIDE)
                if (turns) fetch_heads(heads, m, k, from, true, stage / BLOCK_STAGES + 1u);

            const u8* a = m.acts[stage & 1u] + t_bytes;
            const u8* w = m.weights[stage & 1u][0] + o_bytes;
            if constexpr (!WIDE) {
                UNROLL for (int part = 0; part < (int)STAGE_PARTS; part++) {
                    const u32 s = (stage * STAGE_PARTS + part) / BLOCK_PARTS;
                    turn(m, y, s, k.blocks);  // of every part: it also keeps the compiler from reading both of a block first
                    f32 dw[OS], da[TS];
                    UNROLL for (int h = 0; h < (int)PART_TERMS; h++) {
                        numbers(dw, m.scales[stage & 1u].w[part * (int)PART_TERMS + h] + row_slots);
                        if (h == 0) numbers(da, m.scales[stage & 1u].a[part] + token_slots);
                        const auto start = [](int, int) { return MAGIC_BITS; };
                        const auto fold = [&](int i, int j, i32 c) {
                            y.chain[i][j] = fma_(dw[i] * da[j], float_of_bits((u32)c) - MAGIC_FLOAT, y.chain[i][j]);
                        };
                        if constexpr (PART_TERMS == 2) E::half(w, a, part, h, start, fold);
                        else E::part(w, a, part, start, fold);
                    }
                    if constexpr (F::MINIMA) {
                        f32 offset[OS], sums[TS];
                        numbers(offset, m.minima[stage & 1u].w[part] + row_slots);
                        numbers(sums, m.minima[stage & 1u].sums[part] + token_slots);
                        UNROLL for (int i = 0; i < OS; i++)
                            UNROLL for (int j = 0; j < TS; j++) y.chain[i][j] = fma_(offset[i] * da[j], sums[j], y.chain[i][j]);
                    }
                }
            } else {
                const u32 s = stage / BLOCK_STAGES;
                const auto& scales = m.scales[s & 1u];
                NO_UNROLL for (int some = 0; some < (int)STAGE_PARTS; some += E::TOGETHER)
                UNROLL for (int part = some; part < some + E::TOGETHER; part++) {
                    if constexpr (SCALED && PLANES == 1) {
                        E::part(w, a, part, [&](int i, int j) { return sum[i][j]; }, [&](int i, int j, i32 c) { sum[i][j] = c; });
                    } else if constexpr (PLANES == 2) {
                        E::planes(w, w + BO * STAGE_DEPTH, a, part, sum);
                    } else if constexpr (F::SUBS == 2) {
                        UNROLL for (int half = 0; half < 2; half++) {
                            i32 sub[OS];
                            numbers(sub, scales.subs[2u * (stage % BLOCK_STAGES * STAGE_PARTS + part) + half] + row_slots);
                            E::half(w, a, part, half, [](int, int) { return 0; },
                                    [&](int i, int j, i32 c) { sum[i][j] = multiply_add24(sub[i], c, sum[i][j]); });
                        }
                    } else {
                        i32 sub[OS];
                        numbers(sub, scales.subs[stage % BLOCK_STAGES * STAGE_PARTS + part] + row_slots);
                        E::part(w, a, part, [](int, int) { return 0; },
                                [&](int i, int j, i32 c) { sum[i][j] = multiply_add24(sub[i], c, sum[i][j]); });
                    }
                }
                if (stage % BLOCK_STAGES == BLOCK_STAGES - 1u) {
                    turn(m, y, s, k.blocks);
                    f32 dw[OS], da[TS];
                    numbers(dw, scales.w + row_slots);
                    numbers(da, scales.a + token_slots);
                    UNROLL for (int i = 0; i < OS; i++) UNROLL for (int j = 0; j < TS; j++) {
                        y.chain[i][j] = fma_(dw[i] * da[j], float_of_int(sum[i][j]), y.chain[i][j]);
                        sum[i][j] = 0;
                    }
                    if constexpr (F::MINIMA) {
                        const auto& least = m.minima[s & 1u];
                        f32 dm[OS];
                        numbers(dm, least.w + row_slots);
                        E::minima(least.minima + wave_o, least.low + wave_t, least.high + wave_t, [&](int i, int j, i32 c) {
                            y.chain[i][j] = fma_(-(dm[i] * da[j]), float_of_bits((u32)c) - MAGIC_FLOAT, y.chain[i][j]);
                        });
                    }
                }
            }
            if (more) store(m, f, stage + 1u);
            async_wait<0>();
            if constexpr (WIDE)
                if (turns) store_heads(m, heads, stage / BLOCK_STAGES + 1u);
            barrier();
        }
        turn(m, y, k.blocks, k.blocks);
        const u32 first = m.tile.y, items_here = m.tile.z;
        UNROLL for (int j = 0; j < TS; j++) {
            u32 t = wave_t + E::token_of(j);
            if (t < items_here) {
                u32 item = first + t;
                f32* to = out + (u64)(items.out_rows ? items.out_rows[item] : item) * rows;
                UNROLL for (int i = 0; i < OS; i++) {
                    u32 o = first_row + wave_o + E::row_of(i);
                    if (o < rows) to[o] = total_of(m, y, i, j);
                }
            }
        }
    }
};
