// Launching kernels, and their shared memory: the two things that nvcc spells with syntax of its own.
#pragma once

#include <cstddef>

#include "common/device/dialect.h"
#include "common/device/runtime.h"

#if !defined(FLASHSTEPS_SIM)

namespace device {

// A failed CUDA call as a device::Error (device::OutOfMemory for that case) with the call's text and place.
[[noreturn]] void fail(cudaError_t status, const char* call, const char* file, int line);

extern cudaStream_t launch_stream;  // of all launches: the default one, unless a Graph records them

#define CUDA_CHECK(call)                                                            \
  do {                                                                              \
    const cudaError_t status_ = (call);                                             \
    if (status_ != cudaSuccess) ::device::fail(status_, #call, __FILE__, __LINE__); \
  } while (false)

}  // namespace device

#endif

namespace device {

#if defined(FLASHSTEPS_SIM)

// Throws Error for a configuration that no GPU would accept.
void launch_on_simulator(const simt::Launch& launch);

// kernel<<<grid, block, shared_bytes>>>(args…). In the simulator the call returns when the kernel has ended.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, Args... args) {
  const std::tuple<Params...> params(args...);  // converted once, as <<<>>> does
  const auto call = [](simt::Function function, const void* packed) {
    std::apply(reinterpret_cast<void (*)(Params...)>(function), *static_cast<const std::tuple<Params...>*>(packed));
  };
  launch_on_simulator({reinterpret_cast<simt::Function>(kernel), grid, block, shared_bytes, &params, sizeof(params), call});
}

// The block's shared memory, seen as one struct. A kernel calls it once; the launch asks for sizeof(Smem) bytes.
template <class Smem>
Smem& shared_storage(const std::source_location where = std::source_location::current()) {
  return *static_cast<Smem*>(simt::shared_memory(sizeof(Smem), alignof(Smem), &simt::type_anchor<Smem>, where));
}

#else

// kernel<<<grid, block, shared_bytes>>>(args…), checked. The call returns at once; device::synchronize() waits.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, Args... args) {
  if (shared_bytes > 48 * 1024) {  // above 48 KB a kernel must ask for it
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  }
  kernel<<<grid, block, shared_bytes, launch_stream>>>(static_cast<Params>(args)...);
  CUDA_CHECK(cudaGetLastError());
}

// The block's shared memory, seen as one struct. A kernel calls it once; the launch asks for sizeof(Smem) bytes.
template <class Smem>
__device__ Smem& shared_storage() {
  extern __shared__ __align__(1024) unsigned char raw[];
  return *reinterpret_cast<Smem*>(raw);
}

#endif

// ⌈a / b⌉: how many tiles of b cover a.
template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace device
