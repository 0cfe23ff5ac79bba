#include <stdexcept>

#include "common/runtime/launch.h"
#include "library/borrowed.h"

namespace library {
namespace {

constexpr std::size_t alignment = 256;  // of each array: as cudaMalloc's

std::size_t padded_bytes(const run::Array& array) { return (run::bytes(array) + alignment - 1) / alignment * alignment; }

}  // namespace

Sizes sizes_of(const run::Arrays& arrays) {
  Sizes sizes{};
  for (const run::Array& array : arrays) {
    if (array.role == run::Role::plan) sizes.plan += padded_bytes(array);
    if (array.role == run::Role::scratch) sizes.planned_scratch += padded_bytes(array);
  }
  sizes.scratch = sizes.plan + sizes.planned_scratch;
  return sizes;
}

Borrowed::Borrowed(int device, void* stream) : stream_before_(runtime::launch_stream) {
  CUDA_CHECK(cudaGetDevice(&device_before_));
  if (device != device_before_) CUDA_CHECK(cudaSetDevice(device));
  runtime::launch_stream = static_cast<cudaStream_t>(stream);
}
Borrowed::~Borrowed() {
  runtime::launch_stream = static_cast<cudaStream_t>(stream_before_);
  int device = device_before_;
  if (cudaGetDevice(&device) == cudaSuccess && device != device_before_) cudaSetDevice(device_before_);
}

void* Borrowed::input(const char*, const Rows& rows) { return rows.data; }
void* Borrowed::output(const char*, const Rows& rows) { return rows.data; }

run::DeviceArrays Borrowed::arrays(const std::shared_ptr<const run::Arrays>& arrays, const Memory& memory, const Given& given) {
  auto* next_of_scratch = static_cast<char*>(memory.scratch);
  auto* next_of_plan = memory.plan ? static_cast<char*>(memory.plan) : next_of_scratch + sizes_of(*arrays).planned_scratch;
  return run::DeviceArrays(arrays, [&](const run::Array& array) -> void* {
    if (!run::is_internal(array)) return const_cast<void*>(given(array));
    char*& next = array.role == run::Role::plan ? next_of_plan : next_of_scratch;
    void* data = next;
    next += padded_bytes(array);
    return data;
  });
}

void Borrowed::finish() {}

runtime::Properties properties_of(int device) {
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count) {
    throw std::invalid_argument("device is " + std::to_string(device) + "; there are " + std::to_string(count));
  }
  const auto attribute = [device](cudaDeviceAttr which) {
    int value = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
  };
  runtime::Properties p;
  p.backend = "gpu";
  p.name = "device " + std::to_string(device);
  p.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  p.shared_bytes_per_block = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return p;
}

std::string toolkit() { return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10); }

}  // namespace library
