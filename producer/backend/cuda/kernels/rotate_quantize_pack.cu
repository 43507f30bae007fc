// rotate_quantize_pack: float rows in, packed two-bit rows and scales out, in one pass over the cache.
//
// Equation: (E4, E6-E8) y = H (s o (x - mean)) / sqrt(d), or y = x - mean without signs; then
//           symmetric_absmax_clip.cuh.
// CPU twin: producer.transform.SignedHadamard.rotate, producer.quantize.symmetric_absmax_clip.quantize,
//           producer.quantize.packing.pack; codes and scales equal bit for bit.
// Grid:     any number of blocks; blocks run over the rows in strides of the whole grid.
// Block:    THREADS threads, a row a run of ROW_LANES lanes, 16 channels a lane.
// In:       x        float32, float16 or bfloat16 bits, shape (rows, HEAD_DIM), rows = heads * seq_len
//           signs    float32, shape (HEAD_DIM,), each +1 or -1; null for the identity
//           mean     float32, shape (heads, HEAD_DIM); null for none
//           norm     float32(1/sqrt(HEAD_DIM))
//           clip_ratio  float32, above 0, at most 1
// Out:      packed, scales, nonfinite as quantize_row of symmetric_absmax_clip.cuh
// Rounding: float32, each operation to nearest even; 16-bit inputs are widened exactly first.

#include "common.cuh"
#include "symmetric_absmax_clip.cuh"

template <class Input>
__device__ inline void rotate_quantize_pack(const Input* x, const float* signs, const float* mean, float norm,
                                            float clip_ratio, Index seq_len, Index rows, Byte* packed, float* scales,
                                            int* nonfinite) {
    constexpr int BLOCK_ROWS = THREADS / ROW_LANES;
    const int row_lane = static_cast<int>(threadIdx.x) % ROW_LANES;
    const Index stride = static_cast<Index>(gridDim.x) * BLOCK_ROWS;
    const Word sign_bits = signs == nullptr ? 0u : load_sign_bits(signs, row_lane);
    // The loop's bound is that of the block, so that all lanes of a warp meet in its exchanges.
    for (Index first = static_cast<Index>(blockIdx.x) * BLOCK_ROWS; first < rows; first += stride) {
        const Index row = first + static_cast<int>(threadIdx.x) / ROW_LANES;
        const bool stored = row < rows;
        const Index source = stored ? row : rows - 1;
        float y[LANE_CHANNELS];
        load_channels(x + source * HEAD_DIM + row_lane * LANE_CHANNELS, y);
        if (mean != nullptr) {
            subtract_mean(y, mean, source / seq_len, row_lane);
        }
        if (signs != nullptr) {
            signed_hadamard(y, sign_bits, norm, row_lane);
        }
        quantize_row(y, clip_ratio, row, row_lane, stored, packed, scales, nonfinite);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_quantize_pack_float32(const float* x, const float* signs, const float* mean, float norm, float clip_ratio,
                                 Index seq_len, Index rows, Byte* packed, float* scales, int* nonfinite) {
    rotate_quantize_pack(x, signs, mean, norm, clip_ratio, seq_len, rows, packed, scales, nonfinite);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_quantize_pack_float16(const Float16* x, const float* signs, const float* mean, float norm, float clip_ratio,
                                 Index seq_len, Index rows, Byte* packed, float* scales, int* nonfinite) {
    rotate_quantize_pack(x, signs, mean, norm, clip_ratio, seq_len, rows, packed, scales, nonfinite);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_quantize_pack_bfloat16(const BFloat16* x, const float* signs, const float* mean, float norm,
                                  float clip_ratio, Index seq_len, Index rows, Byte* packed, float* scales,
                                  int* nonfinite) {
    rotate_quantize_pack(x, signs, mean, norm, clip_ratio, seq_len, rows, packed, scales, nonfinite);
}
