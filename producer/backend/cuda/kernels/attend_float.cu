// attend_float: decode attention over the unquantized cache; first of two passes (merge_partials.cu is the second).
// It makes the reference output of a run; it is not a fast path.
//
// Equation: (E9), sums as in attend.cuh.
// CPU twin: producer.backend.blockwise_attention.partial_attention over the tiles of NumpyBackend.attend_float; equal within the bound
//           of docs/methods/kernels.md, "What equal means".
// Grid:     (splits, num_kv_heads, ceil(rows / ROWS)), ROWS = 1, 2 or 4 in the kernel's name.
// Block:    THREADS threads; thread map in attend.cuh.
// In:       queries  float32, shape (queries, num_heads, HEAD_DIM), rotated as the keys are, divided by sqrt(d)
//           k, v     float32, shape (num_kv_heads, seq_len, HEAD_DIM)
// Out:      top, total, sums as attend.cuh
// Rounding: float32 with fused multiply-adds, channels in order.

#include "attend.cuh"
#include "common.cuh"

struct FloatCache {
    static constexpr float WORTH = 1.0f;
    const float* k;
    const float* v;

    template <int ROWS>
    __device__ void score(Index token, const float (*query)[HEAD_DIM], const float (*)[ROW_LANES],
                          float (&score)[ROWS]) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            score[r] = 0.0f;
        }
        for (int w = 0; w < ROW_LANES; ++w) {
            float x[LANE_CHANNELS];
            load_channels(k + token * HEAD_DIM + w * LANE_CHANNELS, x);
#pragma unroll
            for (int c = 0; c < LANE_CHANNELS; ++c) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    score[r] = fmaf(query[r][w * LANE_CHANNELS + c], x[c], score[r]);
                }
            }
        }
    }

    __device__ float values(Index token, int row_lane, float (&x)[LANE_CHANNELS]) const {
        load_channels(v + token * HEAD_DIM + row_lane * LANE_CHANNELS, x);
        return 1.0f;
    }
};

__device__ inline FloatCache float_head(const float* k, const float* v, Index seq_len) {
    const Index first = seq_len * blockIdx.y * HEAD_DIM;
    return FloatCache{k + first, v + first};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_float_1(const float* queries, const float* k, const float* v, int rows, int group, Index seq_len,
                   int split_tokens, float* top, float* total, float* sums) {
    attend_split<1>(float_head(k, v, seq_len), queries, rows, group, seq_len, split_tokens, top, total, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_float_2(const float* queries, const float* k, const float* v, int rows, int group, Index seq_len,
                   int split_tokens, float* top, float* total, float* sums) {
    attend_split<2>(float_head(k, v, seq_len), queries, rows, group, seq_len, split_tokens, top, total, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_float_4(const float* queries, const float* k, const float* v, int rows, int group, Index seq_len,
                   int split_tokens, float* top, float* total, float* sums) {
    attend_split<4>(float_head(k, v, seq_len), queries, rows, group, seq_len, split_tokens, top, total, sums);
}
