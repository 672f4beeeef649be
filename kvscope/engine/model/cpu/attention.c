/* Attention over block tables, for chunks of prompts and single tokens alike.
 *
 * A task is a tile of one sequence's tokens and one key/value head; its rows are the tile's tokens times the query
 * heads that share the key/value head. It goes over the context in chunks of keys and keeps, of each row, the largest
 * score so far, the sum of exponentials and the weighted sum of values (Dao et al., FlashAttention, 2205.14135).
 * Both products run over pairs of bfloat16: of neighbouring dimensions for scores, of neighbouring keys for values.
 */
#include "vectors.h"

#define CHUNK 64 /* keys that are looked at together: four vectors of scores */
#define MAX_ROWS 96 /* query rows (tokens times heads of one key/value head) of a task: their sums fit the L2 cache */

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
        i32x16 is_visible = LANE + (int)(g * LANES) < (int)num_visible;
        f32x16 v = choose(is_visible, load_f32(scores + g * LANES) * scale, all(-1e30f));
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

/* Finds the keys and values of a chunk of the context, and asks for them to be fetched. Past the end are zeros. */
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

/* Where a row of the tile begins in queries and results [num_tokens, num_heads, head_dim]. */
INLINE long row_of(const Attention *at, const Task *task, long row) {
    long heads = at->num_heads / at->num_kv_heads;
    return ((task->first + row / heads) * at->num_heads + task->kv_head * heads + row % heads) * at->head_dim;
}

/* `following` is likely to be the next one: its first keys and values are asked for. */
static void attend_tile(const Attention *at, const Task *task, const Task *following) {
    long num_tokens = task->num_tokens, position = task->position, kv_head = task->kv_head;
    const int32_t *table = task->table;
    long head_dim = at->head_dim, heads = at->num_heads / at->num_kv_heads, num_rows = num_tokens * heads;
    bf16 query[num_rows * head_dim], weights[num_rows * CHUNK];
    float sums[num_rows * head_dim], scores[num_rows * CHUNK], largest[num_rows], total[num_rows];
    uint32_t keys[head_dim / 2 * CHUNK], values[CHUNK / 2 * head_dim];
    memset(sums, 0, sizeof sums);
    for (long row = 0; row < num_rows; row++) {
        memcpy(query + row * head_dim, at->query + row_of(at, task, row), head_dim * sizeof(bf16));
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
    for (long row = 0; row < num_rows; row++)
        for (long i = 0; i < head_dim; i += LANES)
            store_bf16(at->out + row_of(at, task, row) + i, load_f32(sums + row * head_dim + i) / total[row]);
}

/* A task for each tile of tokens and key/value head; of long sequences the last tokens first, they have most to do. */
static Task *list_tasks(const int32_t *query_starts, const int32_t *seq_lens, const int32_t *block_ids,
                        const int64_t *table_starts, long num_seqs, long num_kv_heads, long tile, long *num_tasks) {
    *num_tasks = 0;
    for (long seq = 0; seq < num_seqs; seq++)
        *num_tasks += (query_starts[seq + 1] - query_starts[seq] + tile - 1) / tile * num_kv_heads;
    Task *tasks = malloc(*num_tasks * sizeof(Task)), *next = tasks;
    for (long seq = num_seqs - 1; seq >= 0; seq--)
        for (long end = query_starts[seq + 1], stop = end; stop > query_starts[seq];) {
            long size = stop - query_starts[seq] < tile ? stop - query_starts[seq] : tile;
            stop -= size;
            for (long head = 0; head < num_kv_heads; head++)
                *next++ = (Task){block_ids + table_starts[seq], stop, size, seq_lens[seq] - (end - stop), head};
        }
    return tasks;
}

/* Sequence i has the tokens [query_starts[i], query_starts[i + 1]), the last of its seq_lens[i]; its blocks are
 * block_ids from table_starts[i] on. */
void paged_attention(const bf16 *query, const bf16 *key_cache, const bf16 *value_cache, const int32_t *query_starts,
                     const int32_t *seq_lens, const int32_t *block_ids, const int64_t *table_starts, bf16 *out,
                     long num_seqs, long num_heads, long num_kv_heads, long head_dim, long block_size, float scale,
                     int num_threads) {
    const Attention at = {query,        key_cache, value_cache, out, num_heads, num_kv_heads, head_dim, block_size,
                          scale * 1.4426950409f};
    long num_tasks, tile = MAX_ROWS / (num_heads / num_kv_heads);
    Task *tasks =
        list_tasks(query_starts, seq_lens, block_ids, table_starts, num_seqs, num_kv_heads, tile, &num_tasks);
#pragma omp parallel for num_threads(num_threads) schedule(dynamic) if (num_tasks > 1)
    for (long i = 0; i < num_tasks; i++) {
        long ahead = i + num_threads;
        attend_tile(&at, tasks + i, ahead < num_tasks ? tasks + ahead : NULL);
    }
    free(tasks);
}
