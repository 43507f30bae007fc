// rotate: float rows in, rotated float rows out; for attention over the unquantized cache.
//
// Equation: (E4) y = H (s o x) / sqrt(d).
// CPU twin: producer.transform.SignedHadamard.rotate; equal bit for bit.
// Grid:     any number of blocks; blocks run over the rows in strides of the whole grid.
// Block:    THREADS threads, a row a run of ROW_LANES lanes, 16 channels a lane.
// In:       x float32, shape (rows, HEAD_DIM); signs float32, shape (HEAD_DIM,); norm float32(1/sqrt(HEAD_DIM))
// Out:      y float32, shape (rows, HEAD_DIM); may be x
// Rounding: float32, each operation to nearest even.

#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate(const float* x, const float* signs, float norm, Index rows, float* y) {
    constexpr int BLOCK_ROWS = THREADS / ROW_LANES;
    const int row_lane = static_cast<int>(threadIdx.x) % ROW_LANES;
    const Index stride = static_cast<Index>(gridDim.x) * BLOCK_ROWS;
    const Word sign_bits = load_sign_bits(signs, row_lane);
    for (Index first = static_cast<Index>(blockIdx.x) * BLOCK_ROWS; first < rows; first += stride) {
        const Index row = first + static_cast<int>(threadIdx.x) / ROW_LANES;
        const bool stored = row < rows;
        float channels[LANE_CHANNELS];
        load_channels(x + (stored ? row : rows - 1) * HEAD_DIM + row_lane * LANE_CHANNELS, channels);
        signed_hadamard(channels, sign_bits, norm, row_lane);
        if (stored) {
            store_channels(y + row * HEAD_DIM + row_lane * LANE_CHANNELS, channels);
        }
    }
}
