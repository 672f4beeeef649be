/* What a decoder's step does with each token by itself: norms, SwiGLU, rotary embedding with the write to the KV cache.
 *
 * Shapes are those of the Python functions in native_kernels.py.
 */
#include "vectors.h"

#define MIN_PARALLEL 32768 /* elements below which waking a second thread costs more than it brings */

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
