// squared_error: the two sums of the NMSE of every query.
//
// Equation: (E10) error = sum (a - b)^2, power = sum b^2.
// CPU twin: producer.numerics.nmse.nmse, up to the order of its float64 sums.
// Grid:     (queries,).
// Block:    THREADS threads.
// In:       observed, reference float32, shape (queries, width)
// Out:      error, power float64, shape (queries,)
// Rounding: differences, squares and sums in float64; a thread takes every THREADS-th column in order, then a tree
//           over the threads.

#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    squared_error(const float* observed, const float* reference, Index width, double* error, double* power) {
    __shared__ double scratch[THREADS];
    const Index first = static_cast<Index>(blockIdx.x) * width;
    double error_part = 0.0;
    double power_part = 0.0;
    for (Index c = threadIdx.x; c < width; c += THREADS) {
        const double b = static_cast<double>(reference[first + c]);
        const double difference = static_cast<double>(observed[first + c]) - b;
        error_part = error_part + difference * difference;
        power_part = power_part + b * b;
    }
    error_part = block_sum(error_part, scratch);
    power_part = block_sum(power_part, scratch);
    if (threadIdx.x == 0) {
        error[blockIdx.x] = error_part;
        power[blockIdx.x] = power_part;
    }
}
