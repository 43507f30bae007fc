// merge_partials: the second pass of decode attention: the sums of all splits become outputs.
//
// Equation: (E9) top = max_s top_s, f_s = exp(top_s - top), output_c = sum_s f_s sums_sc / sum_s f_s total_s.
// CPU twin: producer.backend.blockwise_attention.merge_partials.
// Grid:     (rows, num_kv_heads).
// Block:    THREADS threads: a channel a thread (or several channels where HEAD_DIM is larger), and where HEAD_DIM is
//           smaller THREADS / HEAD_DIM *parts* that take every so-manieth split.
// In:       top, total  float32, shape (num_kv_heads, rows, splits)
//           sums        float32, shape (num_kv_heads, rows, splits, HEAD_DIM)
// Out:      outputs     float32, shape (queries, num_heads, HEAD_DIM)
// Rounding: float64, splits in order within a part, then the parts in turn; rounded to float32 once.

#include "attend.cuh"
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    merge_partials(const float* top, const float* total, const float* sums, int splits, int group, float* outputs) {
    constexpr int WIDTH = HEAD_DIM < THREADS ? HEAD_DIM : THREADS;
    constexpr int PARTS = THREADS / WIDTH;
    constexpr int PASSES = HEAD_DIM / WIDTH;
    __shared__ float scratch[THREADS];
    __shared__ double factor[THREADS];
    __shared__ double part_sums[THREADS];
    const int thread = static_cast<int>(threadIdx.x);
    const int row = static_cast<int>(blockIdx.x);
    const int head = static_cast<int>(blockIdx.y);
    const Index first = (static_cast<Index>(head) * gridDim.x + row) * splits;

    float best = __uint_as_float(0xff800000u);
    for (int s = thread; s < splits; s += THREADS) {
        best = fmaxf(best, top[first + s]);
    }
    best = block_max(best, scratch);

    double sum[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        sum[p] = 0.0;
    }
    double weight = 0.0;
    for (int from = 0; from < splits; from += THREADS) {
        const int count = splits - from < THREADS ? splits - from : THREADS;
        if (thread < count) {
            // The difference is rounded to float32, as the CPU twin does.
            factor[thread] = exp(static_cast<double>(top[first + from + thread] - best));
            weight = weight + factor[thread] * static_cast<double>(total[first + from + thread]);
        }
        __syncthreads();
#pragma unroll 4
        for (int s = thread / WIDTH; s < count; s += PARTS) {
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                const Index place = (first + from + s) * HEAD_DIM + p * WIDTH + thread % WIDTH;
                sum[p] = sum[p] + factor[s] * static_cast<double>(sums[place]);
            }
        }
        __syncthreads();
    }
    weight = block_sum(weight, part_sums);
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        part_sums[thread] = sum[p];
        __syncthreads();
        if (thread < WIDTH) {
            double all = part_sums[thread];
            for (int part = 1; part < PARTS; ++part) {
                all = all + part_sums[part * WIDTH + thread];
            }
            outputs[row_offset(row, head, static_cast<int>(gridDim.y), group) + p * WIDTH + thread] =
                static_cast<float>(all / weight);
        }
        __syncthreads();
    }
}
