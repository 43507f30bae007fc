// attend_packed: decode attention that reads the packed cache; first of two passes (merge_partials.cu is the second).
//
// Equation: (E7, E9) k = (2 code - 3) scale / 3 and v likewise; sums as in attend.cuh.
// CPU twin: producer.backend.blockwise_attention.partial_attention over the tiles of NumpyBackend.attend_packed; equal within the bound
//           of docs/methods/kernels.md, "What equal means".
// Grid:     (splits, num_kv_heads, ceil(rows / ROWS)), ROWS = 1, 2 or 4 in the kernel's name.
// Block:    THREADS threads; thread map in attend.cuh.
// In:       queries  float32, shape (queries, num_heads, HEAD_DIM), rotated as the keys are, divided by sqrt(d)
//           k_packed, v_packed  uint8, shape (num_kv_heads, seq_len, HEAD_DIM / 4)
//           k_scales, v_scales  float32, shape (num_kv_heads, seq_len, GROUPS)
// Out:      top, total, sums as attend.cuh
// Rounding: float32 with fused multiply-adds. A code becomes the float32 1 + code/4 by placing its bits at the top of
//           the mantissa: no conversion instruction. For keys, q.(code - 1.5)/4 = q.(1 + code/4) - 1.375 sum(q),
//           taken off per word so that the running sum stays small; for values 1.375 is taken off each level, exactly, because weights are all positive and their
//           offset would drown the sum. One level of 1/4 is worth 8/3 of the scale.

#include "attend.cuh"
#include "common.cuh"

constexpr float OFFSET = 1.375f;
constexpr float LEVEL_WORTH = 8.0f / 3.0f;

// 1 + code/4 for channel c of a word.
__device__ inline float level_of(Word word, int c) {
    const Word aligned = 2 * c <= 21 ? word << (21 - 2 * c) : word >> (2 * c - 21);
    return __uint_as_float((aligned & 0x600000u) | 0x3f800000u);
}

// Words that are loaded at once: 16 bytes where a group has so many.
constexpr int LOADED_WORDS = GROUP_LANES < 4 ? GROUP_LANES : 4;

__device__ inline void load_words(const Word* source, Word (&words)[LOADED_WORDS]) {
    if constexpr (LOADED_WORDS == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(source);
        words[0] = v.x;
        words[1] = v.y;
        words[2] = v.z;
        words[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < LOADED_WORDS; ++i) {
            words[i] = source[i];
        }
    }
}

struct PackedCache {
    static constexpr float WORTH = LEVEL_WORTH;
    const Word* k_words;
    const float* k_scales;
    const Word* v_words;
    const float* v_scales;

    template <int ROWS>
    __device__ void score(Index token, const float (*query)[HEAD_DIM], const float (*query_sum)[ROW_LANES],
                          float (&score)[ROWS]) const {
        const Word* words = k_words + token * ROW_LANES;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            score[r] = 0.0f;
        }
        for (int g = 0; g < GROUPS; ++g) {
            float dot[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                dot[r] = 0.0f;
            }
            // Not unrolled: else the whole query is kept in registers from token to token, and spills.
#pragma unroll 1
            for (int w = g * GROUP_LANES; w < (g + 1) * GROUP_LANES; w += LOADED_WORDS) {
                Word loaded[LOADED_WORDS];
                load_words(words + w, loaded);
#pragma unroll
                for (int i = 0; i < LOADED_WORDS * LANE_CHANNELS; ++i) {
                    if (i % LANE_CHANNELS == 0) {
#pragma unroll
                        for (int r = 0; r < ROWS; ++r) {
                            dot[r] = fmaf(-OFFSET, query_sum[r][w + i / LANE_CHANNELS], dot[r]);
                        }
                    }
                    const float level = level_of(loaded[i / LANE_CHANNELS], i % LANE_CHANNELS);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        dot[r] = fmaf(query[r][w * LANE_CHANNELS + i], level, dot[r]);
                    }
                }
            }
            const float unit = k_scales[token * GROUPS + g] * LEVEL_WORTH;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                score[r] = fmaf(dot[r], unit, score[r]);
            }
        }
    }

    __device__ float values(Index token, int row_lane, float (&x)[LANE_CHANNELS]) const {
        const Word word = v_words[token * ROW_LANES + row_lane];
#pragma unroll
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            x[c] = level_of(word, c) - OFFSET;
        }
        return v_scales[token * GROUPS + row_lane / GROUP_LANES];
    }
};

__device__ inline PackedCache packed_head(const Byte* k_packed, const float* k_scales, const Byte* v_packed,
                                          const float* v_scales, Index seq_len) {
    const Index rows = seq_len * blockIdx.y;
    return PackedCache{reinterpret_cast<const Word*>(k_packed) + rows * ROW_LANES, k_scales + rows * GROUPS,
                       reinterpret_cast<const Word*>(v_packed) + rows * ROW_LANES, v_scales + rows * GROUPS};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_packed_1(const float* queries, const Byte* k_packed, const float* k_scales, const Byte* v_packed,
                    const float* v_scales, int rows, int group, Index seq_len, int split_tokens, float* top,
                    float* total, float* sums) {
    attend_split<1>(packed_head(k_packed, k_scales, v_packed, v_scales, seq_len), queries, rows, group, seq_len,
                    split_tokens, top, total, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_packed_2(const float* queries, const Byte* k_packed, const float* k_scales, const Byte* v_packed,
                    const float* v_scales, int rows, int group, Index seq_len, int split_tokens, float* top,
                    float* total, float* sums) {
    attend_split<2>(packed_head(k_packed, k_scales, v_packed, v_scales, seq_len), queries, rows, group, seq_len,
                    split_tokens, top, total, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_packed_4(const float* queries, const Byte* k_packed, const float* k_scales, const Byte* v_packed,
                    const float* v_scales, int rows, int group, Index seq_len, int split_tokens, float* top,
                    float* total, float* sums) {
    attend_split<4>(packed_head(k_packed, k_scales, v_packed, v_scales, seq_len), queries, rows, group, seq_len,
                    split_tokens, top, total, sums);
}
