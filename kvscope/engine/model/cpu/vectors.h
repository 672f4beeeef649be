/* Sixteen numbers at a time: what the kernels of this folder are written in. bfloat16 in memory, float32 in between.
 *
 * Plain C with the vector extensions of GCC and Clang: they become whatever the CPU has. Only where there is an
 * instruction for just what a function does is it named. Sizes of rows are multiples of 16, head_dim of 32;
 * native_kernels.py sees to it.
 */
#ifndef KVSCOPE_VECTORS_H
#define KVSCOPE_VECTORS_H

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
#define MAX_HEAD_DIM 256

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

#endif
