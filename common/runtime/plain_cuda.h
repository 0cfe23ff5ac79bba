// CUDA's runtime for a file of plain CUDA in the simulator (cmake/plain_cuda.py makes the C++): the calls that a first program
// needs. They do what the CUDA Runtime API says of them, and tell on stderr what a GPU program would suffer from in silence.
//
// A launch, and a copy with Async in its name, return at once: the work is done when something waits for it (cudaMemcpy,
// cudaStreamSynchronize, cudaDeviceSynchronize), and not before. So a program that forgets to wait sees here what it may see on
// a GPU. Streams other than the default one are independent of each other; the default stream waits for all, and all wait for
// it.
//
// At the program's end, what the simulator found is on stderr, and the exit status is 1 if there was anything. The environment
// may ask for another schedule, SIM_SEED=7, and for the counters of each launch in a file, SIM_COUNTERS=counters.json.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>

#include "common/simt/cuda.h"

#pragma GCC visibility push(default)

namespace plain {

using Where = std::source_location;

cudaError_t allocate(const char* name, void** pointer, std::size_t bytes);

// What stands between <<< and >>>, after the bytes of the kernel's own __shared__ variables.
struct Launch {
  std::size_t fixed_bytes;  // of __shared__ variables whose size the source gives
  dim3 grid, block;
  std::size_t dynamic_bytes;  // of the extern __shared__ array
  cudaStream_t stream;
};
inline Launch configured(std::size_t fixed_bytes, dim3 grid, dim3 block, std::size_t dynamic_bytes = 0,
                         cudaStream_t stream = nullptr) {
  return {fixed_bytes, grid, block, dynamic_bytes, stream};
}

void enqueue(const Launch& launch, const std::function<void(const Launch&)>& run);

// launch(kernel, {…}) is a function of the kernel's arguments.
template <class... Params>
auto launch(void (*kernel)(Params...), const Launch& how) {
  return [=](auto... args) {
    const std::tuple<Params...> params(args...);  // converted once, as <<<>>> does
    const auto call = [](simt::Function function, const void* packed) {
      std::apply(reinterpret_cast<void (*)(Params...)>(function), *static_cast<const std::tuple<Params...>*>(packed));
    };
    enqueue(how, [=](const Launch& l) {
      simt::launch({reinterpret_cast<simt::Function>(kernel), l.grid, l.block, l.fixed_bytes + l.dynamic_bytes, &params,
                    sizeof(params), call});
    });
  };
}

template <class Shared>
Shared& shared(const Where where = Where::current()) {
  return *static_cast<Shared*>(simt::shared_memory(sizeof(Shared), alignof(Shared), &simt::type_anchor<Shared>, where));
}

// The extern __shared__ array: behind the kernel's other __shared__ variables, if it has any.
template <class T, class Shared = void>
T* dynamic_shared(const Where where = Where::current()) {
  if constexpr (std::is_void_v<Shared>) {
    return static_cast<T*>(simt::shared_memory(0, alignof(T), nullptr, where));
  } else {
    constexpr std::size_t begin = (sizeof(Shared) + alignof(T) - 1) / alignof(T) * alignof(T);
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(&shared<Shared>(where)) + begin);
  }
}

// asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 …"): the sums, which inline PTX names one by one, A and B.
[[gnu::always_inline]] inline void mma_m16n8k16(float& c0, float& c1, float& c2, float& c3, std::uint32_t a0, std::uint32_t a1,
                                                std::uint32_t a2, std::uint32_t a3, std::uint32_t b0, std::uint32_t b1,
                                                const Where where = Where::current()) {
  const std::uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  float* const c = &c0;
  if (&c1 == c + 1 && &c2 == c + 2 && &c3 == c + 3) {  // in their place, so that the lane need not wait (simt/mma.h)
    simt::mma(c, a, b, c, 16, false, where);
    return;
  }
  float sums[4] = {c0, c1, c2, c3};
  simt::mma(sums, a, b, sums, 16, false, where);
  c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3];
}

// `pointer` gets the address of `bytes` of device memory. The simulator's reports call the memory by the pointer's name.
template <class T>
cudaError_t cudaMalloc(const char* name, T** pointer, std::size_t bytes) {
  return allocate(name, reinterpret_cast<void**>(pointer), bytes);
}
cudaError_t cudaFree(void* pointer, const Where& where = Where::current());
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                       const Where& where = Where::current());
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr,
                            const Where& where = Where::current());
cudaError_t cudaMemset(void* to, int value, std::size_t bytes, const Where& where = Where::current());
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetLastError();  // the last error since the last call, which it forgets
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

}  // namespace plain

#pragma GCC visibility pop
