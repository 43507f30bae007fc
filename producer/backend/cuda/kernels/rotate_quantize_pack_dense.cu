// rotate_quantize_pack_dense: the same with a dense rotation matrix a head.
//
// Equation: y_c = sum over k of (x_k - mean_k) R[k][c]; then symmetric_absmax_clip.cuh. A rotated row is x R.
// CPU twin: producer.backend.cuda.reference.rotate_dense (its sum runs in the same order), then as rotate_quantize_pack;
//           codes and scales equal bit for bit.
// Grid:     (blocks, heads); blocks of a head run over its rows in strides.
// Block:    THREADS threads, a row a run of ROW_LANES lanes. The block's rows and MATRIX_ROWS rows of the matrix at a
//           time are in shared memory, 16 KiB each.
// In:       x       float32, float16 or bfloat16 bits, shape (heads, seq_len, HEAD_DIM)
//           matrix  float32, shape (heads, HEAD_DIM, HEAD_DIM)
//           mean    float32, shape (heads, HEAD_DIM); null for none
// Out:      as rotate_quantize_pack
// Rounding: products rounded, then added in float32 in the order k = 0 ... HEAD_DIM - 1.

#include "common.cuh"
#include "symmetric_absmax_clip.cuh"

template <class Input>
__device__ inline void rotate_quantize_pack_dense(const Input* x, const float* matrix, const float* mean,
                                                  float clip_ratio, Index seq_len, Byte* packed, float* scales,
                                                  int* nonfinite) {
    constexpr int BLOCK_ROWS = THREADS / ROW_LANES;
    constexpr int MATRIX_ROWS = 4096 / HEAD_DIM < HEAD_DIM ? 4096 / HEAD_DIM : HEAD_DIM;
    __shared__ float tile[BLOCK_ROWS * HEAD_DIM];
    __shared__ float slab[MATRIX_ROWS * HEAD_DIM];
    const int thread = static_cast<int>(threadIdx.x);
    const int row_lane = thread % ROW_LANES;
    const int block_row = thread / ROW_LANES;
    const Index head = blockIdx.y;
    const Index stride = static_cast<Index>(gridDim.x) * BLOCK_ROWS;
    for (Index first = static_cast<Index>(blockIdx.x) * BLOCK_ROWS; first < seq_len; first += stride) {
        const Index token = first + block_row;
        const bool stored = token < seq_len;
        const Index source = head * seq_len + (stored ? token : seq_len - 1);
        float y[LANE_CHANNELS];
        load_channels(x + source * HEAD_DIM + row_lane * LANE_CHANNELS, y);
        if (mean != nullptr) {
            subtract_mean(y, mean, head, row_lane);
        }
        store_channels(tile + block_row * HEAD_DIM + row_lane * LANE_CHANNELS, y);
#pragma unroll
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            y[c] = 0.0f;
        }
        for (int from = 0; from < HEAD_DIM; from += MATRIX_ROWS) {
            for (int i = thread; i < MATRIX_ROWS * HEAD_DIM; i += THREADS) {
                slab[i] = matrix[(head * HEAD_DIM + from) * HEAD_DIM + i];
            }
            __syncthreads();
            for (int k = 0; k < MATRIX_ROWS; ++k) {
                const float factor = tile[block_row * HEAD_DIM + from + k];
                float column[LANE_CHANNELS];
                load_channels(slab + k * HEAD_DIM + row_lane * LANE_CHANNELS, column);
#pragma unroll
                for (int c = 0; c < LANE_CHANNELS; ++c) {
                    y[c] = y[c] + factor * column[c];
                }
            }
            __syncthreads();
        }
        quantize_row(y, clip_ratio, source, row_lane, stored, packed, scales, nonfinite);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_quantize_pack_dense_float32(const float* x, const float* matrix, const float* mean, float clip_ratio,
                                       Index seq_len, Byte* packed, float* scales, int* nonfinite) {
    rotate_quantize_pack_dense(x, matrix, mean, clip_ratio, seq_len, packed, scales, nonfinite);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_quantize_pack_dense_float16(const Float16* x, const float* matrix, const float* mean, float clip_ratio,
                                       Index seq_len, Byte* packed, float* scales, int* nonfinite) {
    rotate_quantize_pack_dense(x, matrix, mean, clip_ratio, seq_len, packed, scales, nonfinite);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_quantize_pack_dense_bfloat16(const BFloat16* x, const float* matrix, const float* mean, float clip_ratio,
                                        Index seq_len, Byte* packed, float* scales, int* nonfinite) {
    rotate_quantize_pack_dense(x, matrix, mean, clip_ratio, seq_len, packed, scales, nonfinite);
}
