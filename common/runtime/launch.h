// Launching kernels: the thing that nvcc spells with syntax of its own.
#pragma once

#include <cstddef>
#include <tuple>

#include "common/device/dialect.h"
#include "common/runtime/runtime.h"

namespace runtime {

// How a kernel is launched: launch(kernel, {.grid = blocks, .block = threads, .shared_bytes = sizeof(Smem)}, arguments…).
struct LaunchConfig {
  dim3 grid;                     // blocks
  dim3 block;                    // threads of a block
  std::size_t shared_bytes = 0;  // of a block
  std::size_t registers = 0;     // of a thread, if known: to the simulator, who knows no compiler's choice
  dim3 cluster = {};             // blocks of a cluster, which are on the device together: it takes compute capability 9.0
  // May begin before the launch before it has ended; the kernel waits for that (ptx/griddepcontrol.cuh). A device below 9.0
  // begins it when all before it have ended, which is always right.
  bool dependent = false;
};

#if defined(FLASHSTEPS_SIM)

// Throws Error for a configuration that no GPU would accept.
void launch_on_simulator(const simt::Launch& launch);

// kernel<<<grid, block, shared_bytes>>>(args…). In the simulator the call returns when the kernel has ended.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const LaunchConfig& config, Args... args) {
  const std::tuple<Params...> params(args...);  // converted once, as <<<>>> does
  const auto call = [](simt::Function function, const void* packed) {
    std::apply(reinterpret_cast<void (*)(Params...)>(function), *static_cast<const std::tuple<Params...>*>(packed));
  };
  launch_on_simulator({reinterpret_cast<simt::Function>(kernel), config.grid, config.block, config.shared_bytes, &params,
                       sizeof(params), call, config.registers, config.cluster, config.dependent});
}

#else

// A failed CUDA call as an Error (OutOfMemory for that case) with the call's text and place.
[[noreturn]] void fail(cudaError_t status, const char* call, const char* file, int line);

#define CUDA_CHECK(call)                                                             \
  do {                                                                               \
    const cudaError_t status_ = (call);                                              \
    if (status_ != cudaSuccess) ::runtime::fail(status_, #call, __FILE__, __LINE__); \
  } while (false)

extern thread_local cudaStream_t launch_stream;  // of this thread's launches: the default one, unless somebody set another

// kernel<<<grid, block, shared_bytes>>>(args…), checked, in clusters or dependent if the configuration says so. The call returns
// at once; synchronize() waits.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const LaunchConfig& config, Args... args) {
  if (config.shared_bytes > 48 * 1024) {  // above 48 KB a kernel must ask for it
    CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(config.shared_bytes)));
  }
  const dim3 cluster = config.cluster;
  const bool clusters = cluster.x * cluster.y * cluster.z > 1;
  const bool dependent = config.dependent && properties().compute_capability >= 90;
  if (!clusters && !dependent) {
    kernel<<<config.grid, config.block, config.shared_bytes, launch_stream>>>(static_cast<Params>(args)...);
    CUDA_CHECK(cudaGetLastError());
    return;
  }
  if (clusters && properties().compute_capability < 90)
    throw Error(properties().name + " has no clusters: compute capability 9.0 has them");
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (clusters) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {cluster.x, cluster.y, cluster.z};
  }
  if (dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t all = {};
  all.gridDim = config.grid;
  all.blockDim = config.block;
  all.dynamicSmemBytes = config.shared_bytes;
  all.stream = launch_stream;
  all.attrs = attributes;
  all.numAttrs = count;
  CUDA_CHECK(cudaLaunchKernelEx(&all, kernel, static_cast<Params>(args)...));
}

#endif

}  // namespace runtime
