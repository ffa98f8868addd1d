// Prompt attention over int8 caches with queries and weights as pairs of halves (high and low part): the yardstick of the
// exact kernel, whose structure it shares. Not exact; NVIDIA only; up to 12 heads a KV head.
#include "attention/prompt_int8.cuh"

#if STRATA_CUDA
// Columns of eight: the high parts of heads 0..7, their low parts, and both parts of heads 8..11 in turn. A lane's sums are
// those of DigitColumns<12>.
struct HalfForm {
    typedef DigitColumns<12> C;
    typedef Matrix16 X;
    u32 query[3][4][2], weight[3][4][2];
    f32 scale;

    // A number's high half, or what is left of it.
    static __device__ inline u16 part(f32 x, bool low) {
        const u16 high = half_of_float(x);
        return low ? half_of_float(x - float_of_half(high)) : high;
    }
    static __device__ inline u32 pair(f32 a, f32 b, bool low) { return (u32)part(a, low) | (u32)part(b, low) << 16; }

    // Floats of every head times a power of two that brings the largest below 2^15.
    static __device__ inline void stage(const f32* q, i32 group, u8* stage, f32* scales) {
        for (u32 head = wave(); head < 12u; head += 4) {
            F4 x[2] = {};
            if ((i32)head < group) {
                x[0] = ((const F4*)(q + head * HEAD_DIM))[lane()];
                x[1] = ((const F4*)(q + head * HEAD_DIM))[lane() + 32u];
            }
            f32 m = 0.0f;
            UNROLL for (int i = 0; i < 2; i++)
                m = max_(max_(m, max_(magnitude(x[i].x), magnitude(x[i].y))), max_(magnitude(x[i].z), magnitude(x[i].w)));
            m = wave_max(m);
            const i32 exponent = m > 1e-30f ? (i32)(bits_of(m) >> 23) - 127 : 14;
            const f32 up = power_of_two(14 - exponent);
            UNROLL for (int i = 0; i < 2; i++)
                ((F4*)stage)[head * 64u + lane() + 32u * i] = F4{x[i].x * up, x[i].y * up, x[i].z * up, x[i].w * up};
            if (lane() == 0) scales[head] = power_of_two(exponent - 14);
        }
    }
    // Depths 2 r and 2 r + 1 of this lane in step s: bytes of the int8 fragment of step s / 2, two halves a word.
    static __device__ inline u32 depth(u32 l, int s, int r) { return 16u * s + 4u * (l & 3u) + 2u * r; }
    static __device__ inline u32 head(u32 l, int t) { return t < 2 ? l >> 2 : 8u + (l >> 3); }
    static __device__ inline bool low(u32 l, int t) { return t == 2 ? l & 4u : t == 1; }
    __device__ inline void take_query(u32 l, u32 w, const u8* stage) {
        UNROLL for (int t = 0; t < 3; t++) UNROLL for (int s = 0; s < 4; s++) UNROLL for (int r = 0; r < 2; r++) {
            const F2 x = *(const F2*)((const f32*)stage + head(l, t) * HEAD_DIM + 64u * w + depth(l, s, r));
            query[t][s][r] = pair(x.x, x.y, low(l, t));
        }
    }
    // Two of a word's signed bytes as halves: 1024 + 128 + x less 1152.
    template <u32 selector> static __device__ inline u32 halves(u32 word) {
        return half2_add(byte_permute<selector>(word ^ 0x80808080u, 0x64646464u), 0xe480e480u);
    }
    static __device__ inline void multiply(f32 (&dots)[3][4], const u32 (&a)[2][4], const u32 (&b)[3][4][2]) {
        UNROLL for (int s = 0; s < 4; s++) {
            const u32* x = &a[s >> 1][2 * (s & 1)];
            const u32 half[4] = {halves<0x4140>(x[0]), halves<0x4140>(x[1]), halves<0x4342>(x[0]), halves<0x4342>(x[1])};
            UNROLL for (int t = 0; t < 3; t++) X::multiply_f16(dots[t], half, b[t][s]);
        }
    }
    static __device__ inline f32 sum(const f32 (&dots)[3][4], int row, int i) {
        return i < 2 ? dots[0][2 * row + i] + dots[1][2 * row + i] : dots[2][2 * row] + dots[2][2 * row + 1];
    }
    __device__ inline void scores(u32 l, u32, const u8* tile, const i8*, Rows2, const f32* q_scales, const f32* scales, f32* out) {
        UNROLL for (int m = 0; m < 4; m++) {
            u32 a[2][4];
            UNROLL for (int k = 0; k < 2; k++) load_keys(l, tile, m, k, a[k]);
            f32 dots[3][4] = {};
            multiply(dots, a, query);
            UNROLL for (int r = 0; r < 2; r++) {
                const u32 cell = 16u * m + C::row(l, r);
                UNROLL for (int i = 0; i < 3; i++) {
                    const u32 h = C::sum_head(l, i);
                    out[h * 68u + cell] = sum(dots, r, i) * (q_scales[h] * scales[cell]);
                }
            }
        }
    }
    __device__ inline void take_weights(u32 l, const f32* p, const f32* scales) {
        f32 most = wave_max(max_(scales[l], scales[l + 32u]));
        most = most > 0.0f ? most : 1.0f;
        const f32 up = div_(16384.0f, most);
        scale = most * (1.0f / 16384.0f);
        UNROLL for (int i = 0; i < 4; i++) {
            const u32 cell = 16u * i + 4u * (l & 3u);
            const F4 s = *(const F4*)(scales + folded(0, cell));
            UNROLL for (int t = 0; t < 3; t++) {
                const F4 x = *(const F4*)(p + head(l, t) * CHUNK_CELLS + folded(head(l, t), cell));
                weight[t][i][0] = pair(x.x * (s.x * up), x.y * (s.y * up), low(l, t));
                weight[t][i][1] = pair(x.z * (s.z * up), x.w * (s.w * up), low(l, t));
            }
        }
    }
    template <class Use> __device__ inline void products(const u32 (&a)[2][4], Use use) {
        f32 dots[3][4] = {};
        multiply(dots, a, weight);
        UNROLL for (int r = 0; r < 2; r++) UNROLL for (int i = 0; i < 3; i++) use(r, i, sum(dots, r, i) * scale);
    }
};

KERNEL_HELD(128, PROMPT_GROUPS_12, 5) prompt_half_g12(PROMPT_PARAMETERS(i8, i8)) { prompt_int8<12, HalfForm>(PROMPT_ARGUMENTS(i8, i8)); }
#endif
