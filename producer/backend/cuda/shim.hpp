// Runs kernels on a CPU: the part of CUDA C++ that producer/backend/cuda/kernels uses, for a C++20 compiler.
//
// For tests and dry runs; it says nothing about speed. The program's text follows this header unchanged
// (producer/backend/cuda/shim.py). The threads of a block are fibers of one operating-system thread: each runs until it meets
// a barrier or a warp exchange, and the order in which they run is shuffled by a seed, so that a missing barrier
// shows as a result that changes with the seed. Blocks run one after the other.
//
// Reported as errors, with the thread: a barrier or exchange that not all threads of the block or warp reach, an
// exchange with a mask other than all lanes, and a fault that would hang a device.
//
// Limits: blocks of one dimension, whole warps, no atomics, no streams; shared memory is not cleared between blocks.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
// One copy for all fibers; the next block overwrites it.
#define __shared__ static
#define __launch_bounds__(threads)

struct float4 {
    alignas(16) float x;
    float y, z, w;
};

struct uint4 {
    alignas(16) unsigned x;
    unsigned y, z, w;
};

inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

inline Dim3 gridDim, blockDim, blockIdx, threadIdx;

using std::exp;
using std::fmaf;
using std::fmaxf;

inline float expf(float x) { return std::exp(x); }

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __double2float_ru(double value) {
    const float nearest = static_cast<float>(value);
    return static_cast<double>(nearest) < value ? std::nextafterf(nearest, INFINITY) : nearest;
}

namespace shim {

constexpr unsigned LANES = 32;
constexpr std::size_t STACK_BYTES = 128 * 1024;

enum class State { ready, at_block_barrier, at_warp_exchange, done };

// A place where a fiber or the scheduler goes on. The portable switch saves the signal mask with a system call, which
// would take nine tenths of the time; on x86-64 the registers that a call must keep are enough.
#if defined(__x86_64__)
using Context = void*;

asm(R"(
    .text
    .local kv_shim_switch
    .type kv_shim_switch, @function
kv_shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size kv_shim_switch, .-kv_shim_switch
)");
extern "C" void kv_shim_switch(Context* from, Context* to);

inline void prepare(Context& context, char* stack, void (*entry)()) {
    auto top = (reinterpret_cast<std::uintptr_t>(stack) + STACK_BYTES) & ~std::uintptr_t{15};
    auto* words = reinterpret_cast<std::uintptr_t*>(top);
    *--words = 0;  // a return address that is never used; it also aligns the stack as a call does
    *--words = reinterpret_cast<std::uintptr_t>(entry);
    words -= 6;
    context = words;
}

inline void switch_to(Context& from, Context& to) { kv_shim_switch(&from, &to); }
#else
using Context = ucontext_t;

inline void prepare(Context& context, char* stack, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

inline void switch_to(Context& from, Context& to) { swapcontext(&from, &to); }
#endif

struct Fiber {
    Context context;
    std::unique_ptr<char[]> stack;
    State state = State::done;
    unsigned exchanges = 0;
};

class Block {
  public:
    // Run one block: `body` is called once a thread.
    template <class Body> void run(unsigned threads, std::mt19937& random, const Body& body) {
        if (fibers.size() < threads) {
            fibers.resize(threads);
            for (Fiber& fiber : fibers) {
                fiber.stack = std::make_unique<char[]>(STACK_BYTES);
            }
        }
        // Two generations: a lane may already write its next value while others still read the last one.
        for (auto& generation : exchanged) {
            generation.assign(threads, 0u);
        }
        entry = [](void* argument) { (*static_cast<const Body*>(argument))(); };
        argument = const_cast<Body*>(&body);
        std::vector<unsigned> order(threads);
        for (unsigned t = 0; t < threads; ++t) {
            order[t] = t;
            start(fibers[t]);
        }
        shuffle(order, random);
        while (step(order)) {
            shuffle(order, random);
        }
    }

    void wait(State state) {
        Fiber& fiber = fibers[current];
        fiber.state = state;
        switch_to(fiber.context, scheduler);
    }

    unsigned exchange(unsigned mask, unsigned bits, unsigned lane_mask) {
        if (mask != 0xffffffffu) {
            throw std::runtime_error("a warp exchange with a mask other than all lanes");
        }
        std::vector<unsigned>& slots = exchanged[fibers[current].exchanges++ % 2];
        const unsigned self = current;
        slots[self] = bits;
        wait(State::at_warp_exchange);
        return slots[self ^ lane_mask];
    }

  private:
    std::vector<Fiber> fibers;
    std::vector<unsigned> exchanged[2];
    Context scheduler{};
    unsigned current = 0;
    void (*entry)(void*) = nullptr;
    void* argument = nullptr;
    std::string fault;

    static void trampoline();

    void start(Fiber& fiber) {
        prepare(fiber.context, fiber.stack.get(), &Block::trampoline);
        fiber.state = State::ready;
        fiber.exchanges = 0;
    }

    static void shuffle(std::vector<unsigned>& order, std::mt19937& random) {
        for (std::size_t i = order.size(); i > 1; --i) {
            std::swap(order[i - 1], order[random() % i]);
        }
    }

    // Run every thread that can run up to its next stop, release what all have reached; false when all are done.
    bool step(const std::vector<unsigned>& order) {
        bool ran = false;
        for (const unsigned t : order) {
            if (fibers[t].state == State::ready) {
                ran = true;
                current = t;
                threadIdx.x = t;
                switch_to(scheduler, fibers[t].context);
                if (!fault.empty()) {
                    throw std::runtime_error(std::exchange(fault, {}) + ", thread " + std::to_string(t));
                }
            }
        }
        const unsigned threads = static_cast<unsigned>(order.size());
        for (unsigned first = 0; first < threads; first += LANES) {
            ran = release(first, first + LANES, State::at_warp_exchange) || ran;
        }
        ran = release(0, threads, State::at_block_barrier) || ran;
        if (ran) {
            return true;
        }
        for (unsigned t = 0; t < threads; ++t) {
            if (fibers[t].state != State::done) {
                throw std::runtime_error("thread " + std::to_string(t) + " waits for ever at a " +
                                         (fibers[t].state == State::at_block_barrier ? "barrier" : "warp exchange") +
                                         " that not all threads reach");
            }
        }
        return false;
    }

    bool release(unsigned first, unsigned end, State state) {
        for (unsigned t = first; t < end; ++t) {
            if (fibers[t].state != state) {
                return false;
            }
        }
        for (unsigned t = first; t < end; ++t) {
            fibers[t].state = State::ready;
        }
        return true;
    }
};

inline Block block;

inline void Block::trampoline() {
    try {
        block.entry(block.argument);
    } catch (const std::exception& error) {
        block.fault = error.what();
    }
    Fiber& fiber = block.fibers[block.current];
    fiber.state = State::done;
    switch_to(fiber.context, block.scheduler);
}

template <class... Arguments, std::size_t... I>
void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cvref_t<Arguments>*>(arguments[I])...);
}

// Launch a kernel with a pointer to each argument, as the driver's interface has them.
template <class... Arguments>
void launch(void (*kernel)(Arguments...), Dim3 grid, unsigned threads, void** arguments, unsigned seed) {
    if (threads == 0 || threads % LANES != 0) {
        throw std::runtime_error("a block of " + std::to_string(threads) + " threads: whole warps are needed");
    }
    gridDim = grid;
    blockDim = {threads, 1, 1};
    std::mt19937 random(seed);
    for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x; ++x) {
                blockIdx = {x, y, z};
                block.run(threads, random, [&] {
                    call(kernel, arguments, std::index_sequence_for<Arguments...>{});
                });
            }
        }
    }
}

}  // namespace shim

inline void __syncthreads() { shim::block.wait(shim::State::at_block_barrier); }

inline unsigned __shfl_xor_sync(unsigned mask, unsigned value, int lane_mask) {
    return shim::block.exchange(mask, value, static_cast<unsigned>(lane_mask));
}

inline float __shfl_xor_sync(unsigned mask, float value, int lane_mask) {
    return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(value), lane_mask));
}
