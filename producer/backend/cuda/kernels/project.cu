// project: head outputs times W_O.
//
// Equation: (E9) y_o = sum over heads and channels of heads_c W_co.
// CPU twin: NumpyBackend.project (which sums in float32).
// Grid:     (ceil(output_dim / THREADS), queries).
// Block:    THREADS threads, an output column a thread.
// In:       heads float32, shape (queries, width); w_o float32, shape (width, output_dim)
// Out:      outputs float32, shape (queries, output_dim)
// Rounding: products and sums in float64, c = 0 ... width - 1; rounded to float32 once.

#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    project(const float* heads, const float* w_o, int width, int output_dim, float* outputs) {
    const int column = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    if (column >= output_dim) {
        return;
    }
    const Index query = blockIdx.y;
    double sum = 0.0;
    for (int c = 0; c < width; ++c) {
        sum = sum
            + static_cast<double>(heads[query * width + c])
                * static_cast<double>(w_o[static_cast<Index>(c) * output_dim + column]);
    }
    outputs[query * output_dim + column] = static_cast<float>(sum);
}
