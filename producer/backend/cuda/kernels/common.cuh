// What every kernel uses: sizes, types, loads of 16 channels, the signed Hadamard transform, block sums.
//
// Device code only: no host function, no standard header, so that the same text is compiled by NVRTC for a GPU
// and as C++ by the shim (producer/backend/cuda/shim.hpp).
//
// Fixed when the module is compiled:
//   KV_HEAD_DIM     channels of a head, a power of two, 16 ... 512
//   KV_GROUP_SIZE   channels that share a scale, a power of two, 16 ... KV_HEAD_DIM
//
// A *row* is the KV_HEAD_DIM channels of one token and head. A row is held by KV_HEAD_DIM / 16 neighbouring lanes,
// 16 consecutive channels each: one packed 32-bit word a lane. Arrays are in C order,
// (num_kv_heads, seq_len, head_dim), as everywhere in the project.
//
// Arithmetic is float32, rounded to nearest, subnormals kept (--ftz=false), products and sums rounded one by one
// (--fmad=false); a fused multiply-add is written out as fmaf where it is wanted.

#pragma once

using Byte = unsigned char;
using Word = unsigned int;
using Index = long long;

constexpr int HEAD_DIM = KV_HEAD_DIM;
constexpr int GROUP_SIZE = KV_GROUP_SIZE;
constexpr int LANE_CHANNELS = 16;
constexpr int ROW_LANES = HEAD_DIM / LANE_CHANNELS;
constexpr int GROUPS = HEAD_DIM / GROUP_SIZE;
constexpr int GROUP_LANES = GROUP_SIZE / LANE_CHANNELS;
constexpr int WARP = 32;
constexpr int THREADS = 256;  // of every block
constexpr Word ALL_LANES = 0xffffffffu;

static_assert((HEAD_DIM & (HEAD_DIM - 1)) == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 512,
              "KV_HEAD_DIM is a power of two, 16 ... 512: a row fills at most one warp");
static_assert((GROUP_SIZE & (GROUP_SIZE - 1)) == 0 && GROUP_SIZE >= 16 && GROUP_SIZE <= HEAD_DIM,
              "KV_GROUP_SIZE is a power of two, 16 ... KV_HEAD_DIM");

// ----------------------------------------------------------------------------------------------------------------
// 16-bit inputs, as bits: no header is needed, and every value is converted exactly.

struct Float16 {
    unsigned short bits;
};

struct BFloat16 {
    unsigned short bits;
};

__device__ inline float widen_float16(Word half) {
    // The exponent moves from bias 15 to bias 127 by an exact product with 2^112, which also scales subnormals.
    const float magnitude = __uint_as_float((half & 0x7fffu) << 13) * 5.192296858534828e33f;
    const Word bits = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u | ((half & 0x3ffu) << 13) : __float_as_uint(magnitude);
    return __uint_as_float(bits | (half & 0x8000u) << 16);
}

__device__ inline float widen_bfloat16(Word half) {
    return __uint_as_float(half << 16);
}

// x[0 ... 15] = 16 consecutive values from `source`, which is aligned to 16 values.
__device__ inline void load_channels(const float* source, float (&x)[LANE_CHANNELS]) {
    const float4* vectors = reinterpret_cast<const float4*>(source);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float4 v = vectors[i];
        x[4 * i] = v.x;
        x[4 * i + 1] = v.y;
        x[4 * i + 2] = v.z;
        x[4 * i + 3] = v.w;
    }
}

__device__ inline void load_halves(const void* source, Word (&words)[8]) {
    const uint4* vectors = reinterpret_cast<const uint4*>(source);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint4 v = vectors[i];
        words[4 * i] = v.x;
        words[4 * i + 1] = v.y;
        words[4 * i + 2] = v.z;
        words[4 * i + 3] = v.w;
    }
}

__device__ inline void load_channels(const Float16* source, float (&x)[LANE_CHANNELS]) {
    Word words[8];
    load_halves(source, words);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        x[2 * i] = widen_float16(words[i] & 0xffffu);
        x[2 * i + 1] = widen_float16(words[i] >> 16);
    }
}

__device__ inline void load_channels(const BFloat16* source, float (&x)[LANE_CHANNELS]) {
    Word words[8];
    load_halves(source, words);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        x[2 * i] = widen_bfloat16(words[i] & 0xffffu);
        x[2 * i + 1] = widen_bfloat16(words[i] >> 16);
    }
}

__device__ inline void store_channels(float* target, const float (&x)[LANE_CHANNELS]) {
    float4* vectors = reinterpret_cast<float4*>(target);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        vectors[i] = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }
}

// ----------------------------------------------------------------------------------------------------------------
// Rotation. CPU twin: producer/transform/fast_hadamard.py, producer/transform/signed_hadamard.py.

// Sign bits of this lane's 16 channels, bit c for channel c; `signs` is float32, shape (HEAD_DIM,), each +1 or -1.
__device__ inline Word load_sign_bits(const float* signs, int row_lane) {
    Word bits = 0;
#pragma unroll
    for (int c = 0; c < LANE_CHANNELS; ++c) {
        bits |= (__float_as_uint(signs[row_lane * LANE_CHANNELS + c]) >> 31) << c;
    }
    return bits;
}

// x = H (s o x) / sqrt(d), H the Sylvester-Hadamard matrix, in the order of additions of the CPU twin: distance 1
// first, every sum and difference rounded, one product with `norm` = float32(1/sqrt(d)) at the end.
// Distances up to 8 are inside a lane, larger ones between lanes. All lanes of the warp must call it.
__device__ inline void signed_hadamard(float (&x)[LANE_CHANNELS], Word sign_bits, float norm, int row_lane) {
#pragma unroll
    for (int c = 0; c < LANE_CHANNELS; ++c) {
        // A product with -1 is a changed sign bit, zeros included.
        x[c] = __uint_as_float(__float_as_uint(x[c]) ^ ((sign_bits >> c & 1u) << 31));
    }
#pragma unroll
    for (int half = 1; half < LANE_CHANNELS; half *= 2) {
#pragma unroll
        for (int pair = 0; pair < LANE_CHANNELS / 2; ++pair) {
            const int low = (pair / half) * 2 * half + pair % half;
            const float a = x[low];
            const float b = x[low + half];
            x[low] = a + b;
            x[low + half] = a - b;
        }
    }
#pragma unroll
    for (int half = 1; half < ROW_LANES; half *= 2) {
        const bool upper = (row_lane & half) != 0;
#pragma unroll
        for (int c = 0; c < LANE_CHANNELS; ++c) {
            const float other = __shfl_xor_sync(ALL_LANES, x[c], half);
            x[c] = upper ? other - x[c] : x[c] + other;
        }
    }
#pragma unroll
    for (int c = 0; c < LANE_CHANNELS; ++c) {
        x[c] = x[c] * norm;
    }
}

// x = x - mean of the row's head, rounded; `mean` is float32, shape (heads, HEAD_DIM).
__device__ inline void subtract_mean(float (&x)[LANE_CHANNELS], const float* mean, Index head, int row_lane) {
    float centre[LANE_CHANNELS];
    load_channels(mean + head * HEAD_DIM + row_lane * LANE_CHANNELS, centre);
#pragma unroll
    for (int c = 0; c < LANE_CHANNELS; ++c) {
        x[c] = x[c] - centre[c];
    }
}

// ----------------------------------------------------------------------------------------------------------------
// Reductions of a block, in an order that depends on THREADS alone: a tree over the thread numbers.
// `scratch` has THREADS places. Every thread of the block gets the result, and the scratch may be used again.

__device__ inline float block_max(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half) {
            scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + half]);
        }
        __syncthreads();
    }
    const float result = scratch[0];
    __syncthreads();
    return result;
}

template <class Number>
__device__ inline Number block_sum(Number value, Number* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half) {
            scratch[threadIdx.x] = scratch[threadIdx.x] + scratch[threadIdx.x + half];
        }
        __syncthreads();
    }
    const Number result = scratch[0];
    __syncthreads();
    return result;
}
