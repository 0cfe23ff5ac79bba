// Stands in for CUDA's own header where a single file (tools/learn/single.py) runs on the simulator: the host's calls that its
// main() makes. A finding of the simulator is the error that the next cudaGetLastError() returns.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>

#include "common/simt/cuda.h"

inline std::string simulated_error;  // none: empty

extern "C" {

const char* cudaGetErrorString(cudaError_t) { return simulated_error.c_str(); }
cudaError_t cudaGetLastError() { return simulated_error.empty() ? cudaSuccess : cudaErrorUnknown; }
cudaError_t cudaDeviceSynchronize() { return cudaGetLastError(); }

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = simt::allocate("an array of " + std::to_string(bytes) + " bytes", bytes);
  if (*data == nullptr) simulated_error = "out of memory";
  return cudaGetLastError();
}
cudaError_t cudaFree(void* data) {
  if (data != nullptr) simt::release(data);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  simt::mark_written(data, bytes);
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToDevice) simt::mark_written(to, bytes);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 66 : static_cast<int>(simt::max_shared_bytes);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

}  // extern "C"

template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*)(Params...), cudaFuncAttribute, int) {
  return cudaSuccess;
}

template <class... Params>
void launch_on_simulator(dim3 cluster, bool dependent, void (*kernel)(Params...), dim3 grid, dim3 block,
                         std::size_t shared_bytes, Params... args) {
  const std::tuple<Params...> params(args...);
  const auto call = [](simt::Function function, const void* packed) {
    std::apply(reinterpret_cast<void (*)(Params...)>(function), *static_cast<const std::tuple<Params...>*>(packed));
  };
  try {
    simt::launch({.kernel = reinterpret_cast<simt::Function>(kernel),
                  .grid = grid,
                  .block = block,
                  .shared_bytes = shared_bytes,
                  .params = &params,
                  .params_bytes = sizeof(params),
                  .call = call,
                  .cluster = cluster,
                  .dependent = dependent});
    for (const simt::Finding& finding : simt::take_findings()) simulated_error += finding.text + "\n";
  } catch (const simt::LaunchError& error) {
    simulated_error = error.text;
  }
}

// In the place of kernel<<<grid, block, shared_bytes>>>(args…).
template <class... Params>
void launch_on_simulator(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, Params... args) {
  launch_on_simulator({}, false, kernel, grid, block, shared_bytes, args...);
}

template <class... Params>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               std::type_identity_t<Params>... args) {
  dim3 cluster;
  bool dependent = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& one = config->attrs[i];
    if (one.id == cudaLaunchAttributeClusterDimension) {
      cluster = {one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z};
    }
    if (one.id == cudaLaunchAttributeProgrammaticStreamSerialization) dependent = true;
  }
  launch_on_simulator(cluster, dependent, kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, args...);
  return cudaGetLastError();
}
