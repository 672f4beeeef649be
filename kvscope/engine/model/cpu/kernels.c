/* The bfloat16 work of a decoder's step on a CPU that is no matrix product with weights: norms, rotary embedding with the
 * write to the KV cache, SwiGLU, and attention over block tables. bfloat16 in and out, float32 in between.
 *
 * Shapes are those of the Python functions in native_kernels.py; sizes of rows are multiples of 16, head_dim of 32, which
 * is seen to there. Plain C with the vector extensions of GCC and Clang: they become whatever the CPU has. Only
 * three functions name instructions, where there are some for just what they do.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

typedef uint16_t bf16;
typedef float f32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))
#define LANES 16
#define CHUNK 64 /* keys that are looked at together: four vectors of scores */
#define MAX_ROWS 96 /* query rows (tokens times heads of one key/value head) of a task: their sums stay in the L2 cache */
#define MAX_HEAD_DIM 256
#define MIN_PARALLEL 32768 /* elements below which waking a second thread costs more than it brings */

static const i32x16 LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

INLINE u32x16 load_u32(const void *from) { u32x16 v; memcpy(&v, from, sizeof v); return v; }
INLINE f32x16 load_f32(const float *from) { f32x16 v; memcpy(&v, from, sizeof v); return v; }
INLINE void store_f32(float *to, f32x16 v) { memcpy(to, &v, sizeof v); }
INLINE f32x16 all(float x) { return (f32x16){0} + x; }

INLINE f32x16 load_bf16(const bf16 *from) {
    u16x16 v;
    memcpy(&v, from, sizeof v);
    return (f32x16)(__builtin_convertvector(v, u32x16) << 16);
}

/* Rounds to nearest, ties to even. NaNs do not occur here. */
INLINE void store_bf16(bf16 *to, f32x16 x) {
#ifdef __AVX512BF16__
    __m256bh v = _mm512_cvtneps_pbh((__m512)x);
#else
    u32x16 bits = (u32x16)x;
    u16x16 v = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, u16x16);
#endif
    memcpy(to, &v, sizeof v);
}

INLINE f32x16 round_bf16(f32x16 x) {
    u32x16 bits = (u32x16)x;
    return (f32x16)((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
}

INLINE f32x16 choose(i32x16 condition, f32x16 yes, f32x16 no) {
    return (f32x16)(((i32x16)yes & condition) | ((i32x16)no & ~condition));
}

INLINE f32x16 larger(f32x16 a, f32x16 b) { return choose(a > b, a, b); }

/* A vector of lanes chosen from a (0 to 15) and b (16 to 31): lane i is the one that `of` says for it. */
#define MASK(of, size)                                                                                           \
    (i32x16) {                                                                                                   \
        of(size, 0), of(size, 1), of(size, 2), of(size, 3), of(size, 4), of(size, 5), of(size, 6), of(size, 7),  \
            of(size, 8), of(size, 9), of(size, 10), of(size, 11), of(size, 12), of(size, 13), of(size, 14),      \
            of(size, 15)                                                                                         \
    }
#if defined(__clang__)
#define SHUFFLE(of, size, a, b)                                                                                       \
    __builtin_shufflevector(a, b, of(size, 0), of(size, 1), of(size, 2), of(size, 3), of(size, 4), of(size, 5),       \
                            of(size, 6), of(size, 7), of(size, 8), of(size, 9), of(size, 10), of(size, 11),           \
                            of(size, 12), of(size, 13), of(size, 14), of(size, 15))
#else
#define SHUFFLE(of, size, a, b) __builtin_shuffle(a, b, MASK(of, size))
#endif
#define ACROSS(size, lane) ((lane) ^ (size))

INLINE float sum_of(f32x16 v) {
    v += SHUFFLE(ACROSS, 8, v, v);
    v += SHUFFLE(ACROSS, 4, v, v);
    v += SHUFFLE(ACROSS, 2, v, v);
    v += SHUFFLE(ACROSS, 1, v, v);
    return v[0];
}

INLINE float largest_of(f32x16 v) {
    v = larger(v, SHUFFLE(ACROSS, 8, v, v));
    v = larger(v, SHUFFLE(ACROSS, 4, v, v));
    v = larger(v, SHUFFLE(ACROSS, 2, v, v));
    v = larger(v, SHUFFLE(ACROSS, 1, v, v));
    return v[0];
}

/* 2 to the power of x, relative error below 3e-6; 0 far below. */
INLINE f32x16 exp2_of(f32x16 x) {
#ifdef __AVX512F__
    f32x16 whole = (f32x16)_mm512_roundscale_ps((__m512)x, 0);
    f32x16 part = x - whole;
#else
    x = choose(x > 126.0f, all(126.0f), x);
    i32x16 is_tiny = x < -126.0f;
    x = choose(is_tiny, all(-126.0f), x);
    i32x16 whole = __builtin_convertvector(x + choose(x < 0.0f, all(-0.5f), all(0.5f)), i32x16);
    f32x16 part = x - __builtin_convertvector(whole, f32x16);
#endif
    f32x16 y = all(0.0013333558f);
    y = y * part + 0.0096181291f;
    y = y * part + 0.0555041087f;
    y = y * part + 0.2402265070f;
    y = y * part + 0.6931471806f;
    y = y * part + 1.0f;
#ifdef __AVX512F__
    return (f32x16)_mm512_scalef_ps((__m512)y, (__m512)whole);
#else
    return choose(is_tiny, all(0.0f), y * (f32x16)((whole + 127) << 23));
#endif
}

/* ---- norm, activation, rotary embedding -------------------------------------------------------------------------- */

/* out = x / rms(x) * weight; where there is a residual, x is first added to it and it is what is normed. */
void rms_norm(const bf16 *x, bf16 *residual, const bf16 *weight, bf16 *out, long num_rows, long size, float eps,
              int num_threads) {
#pragma omp parallel for num_threads(num_threads) if (num_rows * size > MIN_PARALLEL)
    for (long row = 0; row < num_rows; row++) {
        const bf16 *in = x + row * size;
        f32x16 squares = all(0.0f);
        if (residual) {
            bf16 *sum = residual + row * size;
            for (long i = 0; i < size; i += LANES) {
                f32x16 v = round_bf16(load_bf16(in + i) + load_bf16(sum + i));
                store_bf16(sum + i, v);
                squares += v * v;
            }
            in = sum;
        } else {
            for (long i = 0; i < size; i += LANES) {
                f32x16 v = load_bf16(in + i);
                squares += v * v;
            }
        }
        float factor = 1.0f / __builtin_sqrtf(sum_of(squares) / size + eps);
        for (long i = 0; i < size; i += LANES)
            store_bf16(out + row * size + i, load_bf16(in + i) * factor * load_bf16(weight + i));
    }
}

/* gate_up [num_rows, 2 * size]: out = silu(first half) * second half. */
void silu_and_mul(const bf16 *gate_up, bf16 *out, long num_rows, long size, int num_threads) {
#pragma omp parallel for num_threads(num_threads) if (num_rows * size > MIN_PARALLEL)
    for (long row = 0; row < num_rows; row++) {
        const bf16 *gate = gate_up + row * 2 * size, *up = gate + size;
        for (long i = 0; i < size; i += LANES) {
            f32x16 g = load_bf16(gate + i);
            f32x16 activated = g / (1.0f + exp2_of(g * -1.4426950409f));
            store_bf16(out + row * size + i, round_bf16(activated) * load_bf16(up + i));
        }
    }
}

INLINE void rotate_head(const bf16 *in, bf16 *out, const float *cos, const float *sin, const bf16 *norm, long head_dim,
                        float eps) {
    float x[MAX_HEAD_DIM];
    f32x16 squares = all(0.0f);
    for (long i = 0; i < head_dim; i += LANES) {
        f32x16 v = load_bf16(in + i);
        squares += v * v;
        store_f32(x + i, v);
    }
    if (norm) {
        float factor = 1.0f / __builtin_sqrtf(sum_of(squares) / head_dim + eps);
        for (long i = 0; i < head_dim; i += LANES)
            store_f32(x + i, round_bf16(load_f32(x + i) * factor * load_bf16(norm + i)));
    }
    long half = head_dim / 2;
    for (long i = 0; i < half; i += LANES) {
        f32x16 a = load_f32(x + i), b = load_f32(x + half + i), c = load_f32(cos + i), s = load_f32(sin + i);
        store_bf16(out + i, a * c - b * s);
        store_bf16(out + half + i, b * c + a * s);
    }
}

/* qkv [num_tokens, num_heads + 2 * num_kv_heads, head_dim]: rotated queries to `query`, rotated keys and values to the
 * slots of the cache [num_blocks, num_kv_heads, block_size, head_dim]. */
void rotate_and_cache(const bf16 *qkv, const int64_t *positions, const float *cos, const float *sin, bf16 *key_cache,
                      bf16 *value_cache, const int64_t *slot_mapping, const bf16 *qk_norm, bf16 *query, long num_tokens,
                      long num_heads, long num_kv_heads, long head_dim, long block_size, float eps, int num_threads) {
    long row = (num_heads + 2 * num_kv_heads) * head_dim;
#pragma omp parallel for num_threads(num_threads) if (num_tokens * row > MIN_PARALLEL)
    for (long token = 0; token < num_tokens; token++) {
        const bf16 *in = qkv + token * row;
        const float *c = cos + positions[token] * (head_dim / 2), *s = sin + positions[token] * (head_dim / 2);
        for (long head = 0; head < num_heads; head++)
            rotate_head(in + head * head_dim, query + (token * num_heads + head) * head_dim, c, s,
                        qk_norm ? qk_norm + head * head_dim : NULL, head_dim, eps);
        if (slot_mapping[token] < 0) continue;
        long block = slot_mapping[token] / block_size, offset = slot_mapping[token] % block_size;
        for (long head = 0; head < num_kv_heads; head++) {
            long to = ((block * num_kv_heads + head) * block_size + offset) * head_dim;
            rotate_head(in + (num_heads + head) * head_dim, key_cache + to, c, s,
                        qk_norm ? qk_norm + (num_heads + head) * head_dim : NULL, head_dim, eps);
            memcpy(value_cache + to, in + (num_heads + num_kv_heads + head) * head_dim, head_dim * sizeof(bf16));
        }
    }
}

/* ---- attention ----------------------------------------------------------------------------------------------------
 * A task is a tile of one sequence's tokens and one key/value head; its rows are the tile's tokens times the query heads
 * that share the key/value head. It goes over the context in chunks of keys and keeps, of each row, the largest score
 * so far, the sum of exponentials and the weighted sum of values (Dao et al., FlashAttention, 2205.14135).
 * Both products run over pairs of bfloat16: of neighbouring dimensions for scores, of neighbouring keys for values. */

INLINE f32x16 add_pairs(f32x16 sum, uint32_t a, u32x16 b) {
#ifdef __AVX512BF16__
    return (f32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
#else
    u32x16 pair = (u32x16){0} + a;
    sum += (f32x16)(pair << 16) * (f32x16)(b << 16);
    return sum + (f32x16)(pair & 0xffff0000) * (f32x16)(b & 0xffff0000);
#endif
}

/* c [rows, 16 * groups] += a [rows, num_pairs] . b [num_pairs, 16 * groups]; rows and groups are constants. */
INLINE void product_tile(const int rows, const int groups, long num_pairs, const uint32_t *a, long a_stride,
                         const uint32_t *b, long b_stride, float *c, long c_stride) {
    f32x16 sums[6][4];
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < groups; g++) sums[r][g] = load_f32(c + r * c_stride + g * LANES);
    for (long p = 0; p < num_pairs; p++)
        for (int g = 0; g < groups; g++) {
            u32x16 pairs = load_u32(b + p * b_stride + g * LANES);
            for (int r = 0; r < rows; r++) sums[r][g] = add_pairs(sums[r][g], a[r * a_stride + p], pairs);
        }
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < groups; g++) store_f32(c + r * c_stride + g * LANES, sums[r][g]);
}

INLINE void product_rows(const int groups, long num_rows, long num_pairs, const uint32_t *a, long a_stride,
                         const uint32_t *b, long b_stride, float *c, long c_stride) {
    long row = 0;
    for (; row + 6 <= num_rows; row += 6)
        product_tile(6, groups, num_pairs, a + row * a_stride, a_stride, b, b_stride, c + row * c_stride, c_stride);
    a += row * a_stride;
    c += row * c_stride;
    switch (num_rows - row) {
        case 1: product_tile(1, groups, num_pairs, a, a_stride, b, b_stride, c, c_stride); break;
        case 2: product_tile(2, groups, num_pairs, a, a_stride, b, b_stride, c, c_stride); break;
        case 3: product_tile(3, groups, num_pairs, a, a_stride, b, b_stride, c, c_stride); break;
        case 4: product_tile(4, groups, num_pairs, a, a_stride, b, b_stride, c, c_stride); break;
        case 5: product_tile(5, groups, num_pairs, a, a_stride, b, b_stride, c, c_stride); break;
    }
}

static void product(long num_rows, long num_groups, long num_pairs, const uint32_t *a, long a_stride, const uint32_t *b,
                    long b_stride, float *c, long c_stride) {
    for (; num_groups >= 4; num_groups -= 4, b += 4 * LANES, c += 4 * LANES)
        product_rows(4, num_rows, num_pairs, a, a_stride, b, b_stride, c, c_stride);
    for (; num_groups >= 1; num_groups -= 1, b += LANES, c += LANES)
        product_rows(1, num_rows, num_pairs, a, a_stride, b, b_stride, c, c_stride);
}

/* One step of a 16 by 16 transposition: swaps blocks of `size` lanes between rows that are `size` apart. */
#define LOW(size, lane) (((lane) & (size)) ? 16 + (lane) - (size) : (lane))
#define HIGH(size, lane) (((lane) & (size)) ? 16 + (lane) : (lane) + (size))
#define SWAP(size)                                    \
    _Pragma("GCC unroll 16")                          \
    for (int i = 0; i < 16; i++)                      \
        if (!(i & (size))) {                          \
            u32x16 a = rows[i], b = rows[i + (size)]; \
            rows[i] = SHUFFLE(LOW, size, a, b);       \
            rows[i + (size)] = SHUFFLE(HIGH, size, a, b); \
        }

/* 16 keys of head_dim -> [head_dim / 2, 16] pairs of dimensions, rows CHUNK apart. */
INLINE void pack_keys(const bf16 *const *keys, long head_dim, uint32_t *to) {
    for (long first = 0; first < head_dim; first += 2 * LANES) {
        u32x16 rows[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) rows[i] = load_u32(keys[i] + first);
        SWAP(1) SWAP(2) SWAP(4) SWAP(8)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) memcpy(to + (first / 2 + i) * CHUNK, &rows[i], sizeof rows[i]);
    }
}

/* Two keys' values -> [head_dim] pairs. */
INLINE void pack_values(const bf16 *first, const bf16 *second, long head_dim, uint32_t *to) {
    for (long i = 0; i < head_dim; i += LANES) {
        u16x16 a, b;
        memcpy(&a, first + i, sizeof a);
        memcpy(&b, second + i, sizeof b);
        u32x16 pairs = __builtin_convertvector(a, u32x16) | (__builtin_convertvector(b, u32x16) << 16);
        memcpy(to + i, &pairs, sizeof pairs);
    }
}

/* Scores of one row, of which `num_visible` count -> weights in bfloat16; rescales what the row has summed before. */
INLINE void soften(float *scores, long num_groups, long num_visible, float scale, bf16 *weights, float *largest,
                   float *total, float *sums, long head_dim) {
    f32x16 most = all(*largest);
    for (long g = 0; g < num_groups; g++) {
        f32x16 v = choose(LANE + (int)(g * LANES) < (int)num_visible, load_f32(scores + g * LANES) * scale, all(-1e30f));
        store_f32(scores + g * LANES, v);
        most = larger(most, v);
    }
    float now = largest_of(most);
    if (now > *largest) {
        f32x16 factor = exp2_of(all(*largest - now));
        *total *= factor[0];
        for (long i = 0; i < head_dim; i += LANES) store_f32(sums + i, load_f32(sums + i) * factor);
        *largest = now;
    }
    f32x16 sum = all(0.0f);
    for (long g = 0; g < num_groups; g++) {
        f32x16 v = exp2_of(load_f32(scores + g * LANES) - now);
        sum += v;
        store_bf16(weights + g * LANES, v);
    }
    *total += sum_of(sum);
}

typedef struct {
    const bf16 *query, *key_cache, *value_cache;
    bf16 *out;
    long num_heads, num_kv_heads, head_dim, block_size;
    float scale; /* of scores, for powers of two */
} Attention;

typedef struct {
    const bf16 *key[CHUNK], *value[CHUNK];
} Rows;

/* Finds the keys and values of a chunk of the context, and asks for them to be fetched. Past the end there are zeros. */
INLINE void locate(const Attention *at, const int32_t *table, long kv_head, long begin, long end, Rows *rows) {
    static const bf16 nothing[MAX_HEAD_DIM];
    long num_keys = end - begin < CHUNK ? end - begin : CHUNK, num_rows = (num_keys + LANES - 1) / LANES * LANES;
    long block = begin / at->block_size, offset = begin % at->block_size;
    for (long i = 0; i < num_keys; block++, offset = 0) {
        long from = ((table[block] * at->num_kv_heads + kv_head) * at->block_size + offset) * at->head_dim;
        for (; offset < at->block_size && i < num_keys; offset++, i++, from += at->head_dim) {
            rows->key[i] = at->key_cache + from;
            rows->value[i] = at->value_cache + from;
            for (long j = 0; j < at->head_dim; j += 32) {
                __builtin_prefetch(rows->key[i] + j, 0, 2);
                __builtin_prefetch(rows->value[i] + j, 0, 2);
            }
        }
    }
    for (long i = num_keys; i < num_rows; i++) rows->key[i] = rows->value[i] = nothing;
}

typedef struct {
    const int32_t *table; /* of the sequence */
    long first, num_tokens; /* of the step */
    long position; /* of the first */
    long kv_head;
} Task;

/* `following` is likely to be the next one: its first keys and values are asked for. */
static void attend_tile(const Attention *at, const Task *task, const Task *following) {
    long first = task->first, num_tokens = task->num_tokens, position = task->position, kv_head = task->kv_head;
    const int32_t *table = task->table;
    long head_dim = at->head_dim, heads = at->num_heads / at->num_kv_heads, num_rows = num_tokens * heads;
    bf16 query[num_rows * head_dim], weights[num_rows * CHUNK];
    float sums[num_rows * head_dim], scores[num_rows * CHUNK], largest[num_rows], total[num_rows];
    uint32_t keys[head_dim / 2 * CHUNK], values[CHUNK / 2 * head_dim];
    memset(sums, 0, sizeof sums);
    for (long row = 0; row < num_rows; row++) {
        long token = first + row / heads, head = kv_head * heads + row % heads;
        memcpy(query + row * head_dim, at->query + (token * at->num_heads + head) * head_dim, head_dim * sizeof(bf16));
        largest[row] = -1e30f;
        total[row] = 0.0f;
    }
    Rows here, coming;
    long end = position + num_tokens;
    locate(at, table, kv_head, 0, end, &coming);
    for (long begin = 0; begin < end; begin += CHUNK) {
        long num_keys = end - begin < CHUNK ? end - begin : CHUNK, num_groups = (num_keys + LANES - 1) / LANES;
        here = coming;
        if (begin + CHUNK < end)
            locate(at, table, kv_head, begin + CHUNK, end, &coming);
        else if (following)
            locate(at, following->table, following->kv_head, 0, following->position + following->num_tokens, &coming);
        for (long g = 0; g < num_groups; g++) pack_keys(here.key + g * LANES, head_dim, keys + g * LANES);
        memset(scores, 0, sizeof scores);
        product(num_rows, num_groups, head_dim / 2, (uint32_t *)query, head_dim / 2, keys, CHUNK, scores, CHUNK);
        for (long row = 0; row < num_rows; row++)
            soften(scores + row * CHUNK, num_groups, position + row / heads + 1 - begin, at->scale,
                   weights + row * CHUNK, largest + row, total + row, sums + row * head_dim, head_dim);
        for (long i = 0; i < num_groups * LANES; i += 2)
            pack_values(here.value[i], here.value[i + 1], head_dim, values + i / 2 * head_dim);
        product(num_rows, head_dim / LANES, num_groups * LANES / 2, (uint32_t *)weights, CHUNK / 2, values, head_dim,
                sums, head_dim);
    }
    for (long row = 0; row < num_rows; row++) {
        long token = first + row / heads, head = kv_head * heads + row % heads;
        for (long i = 0; i < head_dim; i += LANES)
            store_bf16(at->out + (token * at->num_heads + head) * head_dim + i,
                       load_f32(sums + row * head_dim + i) / total[row]);
    }
}

/* Sequence i has the tokens [query_starts[i], query_starts[i + 1]), the last of its seq_lens[i]; its blocks are
 * block_ids from table_starts[i] on. */
void paged_attention(const bf16 *query, const bf16 *key_cache, const bf16 *value_cache, const int32_t *query_starts,
                     const int32_t *seq_lens, const int32_t *block_ids, const int64_t *table_starts, bf16 *out,
                     long num_seqs, long num_heads, long num_kv_heads, long head_dim, long block_size, float scale, int num_threads) {
    const Attention at = {query,        key_cache, value_cache, out, num_heads, num_kv_heads, head_dim, block_size,
                          scale * 1.4426950409f};
    long tile = MAX_ROWS / (num_heads / num_kv_heads), num_tiles = 0;
    for (long seq = 0; seq < num_seqs; seq++) num_tiles += (query_starts[seq + 1] - query_starts[seq] + tile - 1) / tile;
    long num_tasks = num_tiles * num_kv_heads;
    Task *tasks = malloc(num_tasks * sizeof(Task)), *next = tasks;
    for (long seq = num_seqs - 1; seq >= 0; seq--)
        for (long end = query_starts[seq + 1], stop = end; stop > query_starts[seq];) { /* the last have the most to do */
            long size = stop - query_starts[seq] < tile ? stop - query_starts[seq] : tile;
            stop -= size;
            for (long head = 0; head < num_kv_heads; head++)
                *next++ = (Task){block_ids + table_starts[seq], stop, size, seq_lens[seq] - (end - stop), head};
        }
#pragma omp parallel for num_threads(num_threads) schedule(dynamic) if (num_tasks > 1)
    for (long i = 0; i < num_tasks; i++) {
        long ahead = i + num_threads;
        attend_tile(&at, tasks + i, ahead < num_tasks ? tasks + ahead : NULL);
    }
    free(tasks);
}
