// dequantize: packed rows and scales in, float rows out.
//
// Equation: (E7) value = (code / 1.5 - 1) * scale.
// CPU twin: producer.quantize.symmetric_absmax_clip.dequantize of producer.quantize.packing.unpack; equal bit for bit.
// Grid:     any number of blocks; blocks run over the words in strides of the whole grid.
// Block:    THREADS threads, a word (16 channels of a row) a thread.
// In:       packed uint8, shape (rows, HEAD_DIM / 4); scales float32, shape (rows, GROUPS)
// Out:      values float32, shape (rows, HEAD_DIM)
// Rounding: quotient, difference and product each rounded to float32.

#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    dequantize(const Byte* packed, const float* scales, Index rows, float* values) {
    const Index words = rows * ROW_LANES;
    const Index stride = static_cast<Index>(gridDim.x) * THREADS;
    // The four values of a scale of 1; the compiler folds them with the rounding of the formula.
    const float level_0 = 0.0f / 1.5f - 1.0f;
    const float level_1 = 1.0f / 1.5f - 1.0f;
    const float level_2 = 2.0f / 1.5f - 1.0f;
    const float level_3 = 3.0f / 1.5f - 1.0f;
    for (Index i = static_cast<Index>(blockIdx.x) * THREADS + threadIdx.x; i < words; i += stride) {
        const Word word = reinterpret_cast<const Word*>(packed)[i];
        const float scale = scales[i / GROUP_LANES];
        float x[LANE_CHANNELS];
#pragma unroll
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            const Word code = word >> (2 * c) & 3u;
            const float low = code == 0u ? level_0 : level_1;
            const float high = code == 2u ? level_2 : level_3;
            x[c] = (code < 2u ? low : high) * scale;
        }
        store_channels(values + i * LANE_CHANNELS, x);
    }
}
