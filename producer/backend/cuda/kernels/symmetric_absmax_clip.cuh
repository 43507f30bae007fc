// The quantizer of a row: symmetric, scaled by a clipped maximum.
//
// CPU twin: producer/quantize/symmetric_absmax_clip.py. Per group of GROUP_SIZE channels of a row (E6, E7):
//   scale = max|x| * clip_ratio + 1e-12              two roundings
//   z     = x / scale, held to [-1, 1]
//   code  = (z + 1) * 1.5 rounded half to even       0 ... 3
//
// The division is not carried out. Each step is monotone in x, so code >= k exactly when x >= t_k for a float32 t_k
// that depends on the scale alone. Write z_k for the least float32 z whose code is k: with (z + 1) and the product
// with 1.5 rounded as above, z_1 = -11184810 / 2^24, z_2 = -1 / 2^25, z_3 = 11184814 / 2^24. The rounded quotient is
// at least z_k exactly when the exact quotient is at least the midpoint m_k of z_k and the float32 below it. (It is
// never equal to m_k: m_k has 25 significant bits, and no product of it with a float32 fits 24.) So
//   t_k = scale * m_k rounded up to float32,
// and the product has 49 bits: exact in float64. Three comparisons replace a division, two roundings and a
// conversion per channel, and no bit changes; the tests compare with the plain formula around every t_k.

#pragma once

#include "common.cuh"

constexpr double CODE_1_FROM = -22369621.0 / 33554432.0;
constexpr double CODE_2_FROM = -16777217.0 / 562949953421312.0;
constexpr double CODE_3_FROM = 22369627.0 / 33554432.0;
constexpr Word INFINITY_BITS = 0x7f800000u;

// Largest bit pattern of |x| over the row's group: the bits of max|x|, and above those of the largest float32 when a
// channel is infinite or NaN (which a floating maximum would drop). All lanes of the warp must call it.
__device__ inline Word group_absmax_bits(const float (&x)[LANE_CHANNELS]) {
    Word top = 0;
#pragma unroll
    for (int c = 0; c < LANE_CHANNELS; ++c) {
        const Word bits = __float_as_uint(x[c]) & 0x7fffffffu;
        top = bits > top ? bits : top;
    }
#pragma unroll
    for (int half = 1; half < GROUP_LANES; half *= 2) {
        const Word other = __shfl_xor_sync(ALL_LANES, top, half);
        top = other > top ? other : top;
    }
    return top;
}

__device__ inline float group_scale(Word absmax_bits, float clip_ratio) {
    return __uint_as_float(absmax_bits) * clip_ratio + 1e-12f;
}

// The codes of 16 channels, two bits each, the first channel in the lowest bits (E8): one word of the packed row.
__device__ inline Word pack_codes(const float (&x)[LANE_CHANNELS], float scale) {
    const float from_1 = __double2float_ru(static_cast<double>(scale) * CODE_1_FROM);
    const float from_2 = __double2float_ru(static_cast<double>(scale) * CODE_2_FROM);
    const float from_3 = __double2float_ru(static_cast<double>(scale) * CODE_3_FROM);
    Word word = 0;
#pragma unroll
    for (int c = 0; c < LANE_CHANNELS; ++c) {
        const Word code = static_cast<Word>(x[c] >= from_1) + static_cast<Word>(x[c] >= from_2)
            + static_cast<Word>(x[c] >= from_3);
        word |= code << (2 * c);
    }
    return word;
}

// Quantize one row held by ROW_LANES lanes and write its words and scales.
//   packed     uint8, shape (rows, HEAD_DIM / 4)
//   scales     float32, shape (rows, GROUPS)
//   nonfinite  int32, one value: set to 1 when a channel is infinite or NaN (the row is written all the same)
// All lanes of the warp must call it; `stored` is false for lanes whose row is past the end.
__device__ inline void quantize_row(const float (&x)[LANE_CHANNELS], float clip_ratio, Index row, int row_lane,
                                    bool stored, Byte* packed, float* scales, int* nonfinite) {
    const Word top = group_absmax_bits(x);
    const float scale = group_scale(top, clip_ratio);
    if (!stored) {
        return;
    }
    if (top >= INFINITY_BITS) {
        *nonfinite = 1;  // every writer stores the same value
    }
    reinterpret_cast<Word*>(packed)[row * ROW_LANES + row_lane] = pack_codes(x, scale);
    if (row_lane % GROUP_LANES == 0) {
        scales[row * GROUPS + row_lane / GROUP_LANES] = scale;
    }
}
