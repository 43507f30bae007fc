// Decode attention of one head over one *split*, a run of consecutive tokens: the softmax sums of the first pass.
//
// Equation: (E9) for ROWS queries q_r of the head, already divided by sqrt(d),
//   score_rt = q_r . k_t      top_r = max_t score_rt      total_r = sum_t exp(score_rt - top_r)
//   values_rc = sum_t exp(score_rt - top_r) v_tc
// CPU twin: producer.backend.blockwise_attention.partial_attention; merge_partials.cu is the second pass.
//
// Scores first, a token a thread; then maximum, weights and their sum, each once for the whole split; then values,
// 16 channels a thread, the split's tokens dealt out to THREADS / ROW_LANES slots. All sums have an order that the
// sizes alone decide: in a thread by token, then a tree over the lanes of a warp, then the warps in turn. Nothing
// depends on how blocks are scheduled, so the same device gives the same bits again.
//
// A `Cache` reads tokens; see PackedCache (attend_packed.cu) and FloatCache (attend_float.cu):
//   template <int ROWS> void score(Index token, const float (*query)[HEAD_DIM], const float (*query_sum)[ROW_LANES],
//                                  float (&score)[ROWS])
//   float values(Index token, int row_lane, float (&x)[16])    levels and what one level is worth
//   WORTH: a factor common to all values

#pragma once

#include "common.cuh"

constexpr int MAX_SPLIT_TOKENS = 1024;

// The query heads of a KV head are `group` consecutive ones. Row r of KV head h is query r / group of head
// h * group + r % group, so that queries and outputs stay in their own order (queries, num_heads, HEAD_DIM).
__device__ inline Index row_offset(int row, int head, int num_kv_heads, int group) {
    const Index query = row / group;
    return ((query * num_kv_heads + head) * group + row % group) * HEAD_DIM;
}

// Sum of a thread's value over the lanes of its warp that hold the same channels, in every lane.
__device__ inline float sum_over_slots(float value) {
#pragma unroll
    for (int half = ROW_LANES; half < WARP; half *= 2) {
        value = value + __shfl_xor_sync(ALL_LANES, value, half);
    }
    return value;
}

// queries  float32, shape (queries, num_kv_heads * group, HEAD_DIM); rows = queries * group
// top, total  float32, shape (num_kv_heads, rows, splits); sums  float32, shape (num_kv_heads, rows, splits, HEAD_DIM)
// Grid: (splits, num_kv_heads, ceil(rows / ROWS)). Block: THREADS.
template <int ROWS, class Cache>
__device__ inline void attend_split(const Cache& cache, const float* queries, int rows, int group, Index seq_len,
                                    int split_tokens, float* top, float* total, float* sums) {
    __shared__ float query[ROWS][HEAD_DIM];
    __shared__ float query_sum[ROWS][ROW_LANES];  // of 16 channels each
    __shared__ float weight[ROWS][MAX_SPLIT_TOKENS];
    __shared__ float scratch[THREADS];
    __shared__ float warp_sums[THREADS / WARP][HEAD_DIM];
    const int thread = static_cast<int>(threadIdx.x);
    const int head = static_cast<int>(blockIdx.y);
    const int first_row = static_cast<int>(blockIdx.z) * ROWS;
    const Index first = static_cast<Index>(blockIdx.x) * split_tokens;
    const int count = static_cast<int>(seq_len - first < split_tokens ? seq_len - first : split_tokens);

    for (int i = thread; i < ROWS * HEAD_DIM; i += THREADS) {
        // The last tile may hold fewer rows: the last row is computed again and not written.
        const int row = first_row + i / HEAD_DIM < rows ? first_row + i / HEAD_DIM : rows - 1;
        query[i / HEAD_DIM][i % HEAD_DIM] =
            queries[row_offset(row, head, static_cast<int>(gridDim.y), group) + i % HEAD_DIM];
    }
    __syncthreads();
    for (int i = thread; i < ROWS * ROW_LANES; i += THREADS) {
        float sum = 0.0f;
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            sum = sum + query[i / ROW_LANES][i % ROW_LANES * LANE_CHANNELS + c];
        }
        query_sum[i / ROW_LANES][i % ROW_LANES] = sum;
    }
    __syncthreads();

    float best[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        best[r] = __uint_as_float(0xff800000u);  // -infinity: a thread without tokens
    }
    for (int t = thread; t < count; t += THREADS) {
        float score[ROWS];
        cache.template score<ROWS>(first + t, query, query_sum, score);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            weight[r][t] = score[r];
            best[r] = fmaxf(best[r], score[r]);
        }
    }
    float exp_sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        best[r] = block_max(best[r], scratch);
        float part = 0.0f;
        for (int t = thread; t < count; t += THREADS) {
            weight[r][t] = expf(weight[r][t] - best[r]);
            part = part + weight[r][t];
        }
        exp_sum[r] = block_sum(part, scratch);  // its barriers also publish the weights
    }

    float sum[ROWS][LANE_CHANNELS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            sum[r][c] = 0.0f;
        }
    }
    const int row_lane = thread % ROW_LANES;
#pragma unroll 4
    for (int t = thread / ROW_LANES; t < count; t += THREADS / ROW_LANES) {
        float level[LANE_CHANNELS];
        const float unit = cache.values(first + t, row_lane, level);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float factor = weight[r][t] * unit;
#pragma unroll
            for (int c = 0; c < LANE_CHANNELS; ++c) {
                sum[r][c] = fmaf(factor, level[c], sum[r][c]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            const float warp_sum = sum_over_slots(sum[r][c]);
            if (thread % WARP < ROW_LANES) {
                warp_sums[thread / WARP][row_lane * LANE_CHANNELS + c] = warp_sum;
            }
        }
        __syncthreads();
        const int row = first_row + r;
        const Index part = (static_cast<Index>(head) * rows + row) * gridDim.x + blockIdx.x;
        for (int c = thread; c < HEAD_DIM && row < rows; c += THREADS) {
            float block_total = warp_sums[0][c];
            for (int w = 1; w < THREADS / WARP; ++w) {
                block_total = block_total + warp_sums[w][c];
            }
            sums[part * HEAD_DIM + c] = block_total * Cache::WORTH;
        }
        if (thread == 0 && row < rows) {
            top[part] = best[r];
            total[part] = exp_sum[r];
        }
        __syncthreads();
    }
}
