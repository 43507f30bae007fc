// unpack: packed rows in, one byte a code out.
//
// Equation: (E8) the first code of four occupies the lowest two bits of its byte.
// CPU twin: producer.quantize.packing.unpack; equal.
// Grid:     any number of blocks; blocks run over the words in strides of the whole grid.
// Block:    THREADS threads, a word (16 codes) a thread.
// In:       packed uint8, shape (4 * words,)
// Out:      codes uint8, shape (16 * words,), each 0 ... 3

#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) unpack(const Byte* packed, Index words, Byte* codes) {
    const Index stride = static_cast<Index>(gridDim.x) * THREADS;
    for (Index i = static_cast<Index>(blockIdx.x) * THREADS + threadIdx.x; i < words; i += stride) {
        const Word word = reinterpret_cast<const Word*>(packed)[i];
        Word spread[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            const Word byte = word >> (8 * b);
            spread[b] = (byte & 3u) | (byte >> 2 & 3u) << 8 | (byte >> 4 & 3u) << 16 | (byte >> 6 & 3u) << 24;
        }
        reinterpret_cast<uint4*>(codes)[i] = make_uint4(spread[0], spread[1], spread[2], spread[3]);
    }
}
