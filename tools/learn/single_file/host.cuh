// The host's side: device memory, launches, inputs, times, the command line.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/dialect.h"

// A failed CUDA call ends the program with exit status 3.
#define CUDA_CHECK(call)                                                                       \
  do {                                                                                         \
    const cudaError_t status_ = (call);                                                        \
    if (status_ != cudaSuccess) {                                                              \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(3);                                                                            \
    }                                                                                          \
  } while (false)

namespace runtime {

struct LaunchConfig {
  dim3 grid;                     // blocks
  dim3 block;                    // threads of a block
  std::size_t shared_bytes = 0;  // of a block
  // [if attributes]
  dim3 cluster = {};       // blocks of a cluster
  bool dependent = false;  // may begin before the launch before it has ended; the kernel waits for that
  // [end]
};

// kernel<<<grid, block, shared_bytes>>>(args…), checked.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const LaunchConfig& config, Args... args) {
  if (config.shared_bytes > 48 * 1024) {  // above 48 KB a kernel must ask for it
    const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, attribute, static_cast<int>(config.shared_bytes)));
  }
  // [if attributes]
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t all = {};
  all.attrs = attributes;
  if (config.cluster.x > 1) {
    attributes[all.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[all.numAttrs++].val.clusterDim = {config.cluster.x, config.cluster.y, config.cluster.z};
  }
  if (config.dependent) {
    attributes[all.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[all.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (all.numAttrs > 0) {
    all.gridDim = config.grid;
    all.blockDim = config.block;
    all.dynamicSmemBytes = config.shared_bytes;
    CUDA_CHECK(cudaLaunchKernelEx(&all, kernel, static_cast<Params>(args)...));
    return;
  }
  // [end]
  kernel<<<config.grid, config.block, config.shared_bytes>>>(static_cast<Params>(args)...);
  CUDA_CHECK(cudaGetLastError());
}

struct Properties {
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  // the most one block may ask for
};
inline const Properties& properties() {
  static const Properties known = [] {
    Properties p;
    CUDA_CHECK(cudaDeviceGetAttribute(&p.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CUDA_CHECK(cudaDeviceGetAttribute(&p.shared_bytes_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    return p;
  }();
  return known;
}

}  // namespace runtime

namespace host {

enum class Dtype { fp32, fp16, bf16 };
inline const char* name(Dtype dtype) { return dtype == Dtype::fp32 ? "fp32" : dtype == Dtype::fp16 ? "fp16" : "bf16"; }
inline std::size_t bytes(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

// ---- device memory ----

// Numbers in device memory. At first they are NaN: an element that no kernel writes fails the check.
class DeviceArray {
 public:
  DeviceArray(Dtype dtype, std::size_t count) : dtype_(dtype), count_(count) {
    CUDA_CHECK(cudaMalloc(&data_, count * bytes(dtype)));
    CUDA_CHECK(cudaMemset(data_, 0xff, count * bytes(dtype)));
  }
  // Uploads values. They are rounded to the type, on both sides.
  DeviceArray(Dtype dtype, std::vector<float>& values) : DeviceArray(dtype, values.size()) {
    if (dtype == Dtype::fp32) upload<float>(values);
    if (dtype == Dtype::fp16) upload<__half>(values);
    if (dtype == Dtype::bf16) upload<__nv_bfloat16>(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  void* data() const { return data_; }
  std::vector<float> values() const {
    return dtype_ == Dtype::fp32 ? download<float>() : dtype_ == Dtype::fp16 ? download<__half>() : download<__nv_bfloat16>();
  }

 private:
  template <class T>
  void upload(std::vector<float>& values) {
    const std::vector<T> elements(values.begin(), values.end());
    CUDA_CHECK(cudaMemcpy(data_, elements.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
    values.assign(elements.begin(), elements.end());
  }
  template <class T>
  std::vector<float> download() const {
    std::vector<T> elements(count_);
    CUDA_CHECK(cudaMemcpy(elements.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return {elements.begin(), elements.end()};
  }

  Dtype dtype_;
  std::size_t count_;
  void* data_ = nullptr;
};

// [if scratch]
// Scratch memory, in which the kernels of one launch pass values on to each other: named arrays.
struct Element {
  Element(Dtype dtype) : bytes(host::bytes(dtype)) {}
  static Element int32() { return Dtype::fp32; }  // as large
  std::size_t bytes;
};
struct Array {
  std::string name;
  Element element;
  std::vector<std::int64_t> shape;
};
using Arrays = std::vector<Array>;

inline Array scratch(std::string name, Element element, std::vector<std::int64_t> shape) { return {name, element, shape}; }
// [if plan]
inline Array of_plan(std::string name, Element element, std::vector<std::int64_t> shape) { return {name, element, shape}; }
// [end]
inline Arrays operator+(Arrays arrays, const Arrays& more) {
  arrays.insert(arrays.end(), more.begin(), more.end());
  return arrays;
}

class DeviceArrays {
 public:
  explicit DeviceArrays(const Arrays& arrays) : arrays_(arrays) {
    for (const Array& array : arrays) {
      std::size_t bytes = array.element.bytes;
      for (const std::int64_t extent : array.shape) bytes *= static_cast<std::size_t>(extent);
      CUDA_CHECK(cudaMalloc(&data_.emplace_back(), bytes));
    }
  }
  DeviceArrays(const DeviceArrays&) = delete;
  ~DeviceArrays() {
    for (void* data : data_) cudaFree(data);
  }

  // [if sparse]
  // And what a launch reads beside its inputs.
  template <class T>  // of numbers of 32 bits
  void upload(const std::string& name, const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    arrays_.push_back(scratch(name, Element::int32(), {static_cast<std::int64_t>(bytes / sizeof(std::int32_t))}));
    CUDA_CHECK(cudaMalloc(&data_.emplace_back(), bytes));
    CUDA_CHECK(cudaMemcpy(data_.back(), values.data(), bytes, cudaMemcpyHostToDevice));
  }
  // [end]
  template <class T>
  T* get(const std::string& name) const {
    const auto at = std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& array) { return array.name == name; });
    return at == arrays_.end() ? nullptr : static_cast<T*>(data_[at - arrays_.begin()]);
  }

 private:
  Arrays arrays_;
  std::vector<void*> data_;
};
// [end]

// ---- the command line ----

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

class CommandLine {
 public:
  CommandLine(int argc, char** argv) : words_(argv + 1, argv + argc) {}

  // What stands behind --flag; without the flag, `otherwise`.
  std::string text(const std::string& flag, const std::string& otherwise) {
    known_ += " " + flag + " " + otherwise;
    const auto at = std::find(words_.begin(), words_.end(), flag);
    if (at == words_.end()) return otherwise;
    require(at + 1 != words_.end(), flag + " needs a value");
    const std::string value = at[1];
    words_.erase(at, at + 2);
    return value;
  }
  int number(const std::string& flag, int otherwise, int least = 1) {
    const std::string value = text(flag, std::to_string(otherwise));
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    require(!value.empty() && *end == 0 && number >= least && number <= 1 << 24,
            flag + " is '" + value + "'; it must be a whole number from " + std::to_string(least) + " to 2^24");
    return static_cast<int>(number);
  }
  Dtype dtype(const std::vector<Dtype>& supported) {
    const std::string value = text("--dtype", name(supported[0]));
    std::string names;
    for (const Dtype one : supported) {
      if (value == name(one)) return one;
      names += std::string(" ") + name(one);
    }
    throw UsageError("--dtype is '" + value + "'; this kernel takes" + names);
  }
  // When all flags were asked for.
  void end() const {
    require(words_.empty(), words_.empty() ? "" : "'" + words_[0] + "' is no flag; flags and defaults:" + known_);
  }

 private:
  std::vector<std::string> words_;  // those that nobody has asked for
  std::string known_;
};

// ---- inputs, check, time ----

// Numbers close to N(0, 1), times `factor`, plus `offset`.
inline std::vector<float> random_values(std::mt19937_64& random, std::size_t count, float factor = 1, float offset = 0) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = factor * normal(random) + offset;
  return values;
}

// Some of `count` rows: the first, the last, and others.
inline std::vector<std::int64_t> some_rows(std::mt19937_64& random, std::int64_t count, std::size_t how_many) {
  std::vector<std::int64_t> rows = {0, count - 1};
  while (rows.size() < how_many) rows.push_back(static_cast<std::int64_t>(random() % count));
  return rows;
}

// The largest error in a row, as a part of the reference's largest number. NaN, and what is infinite by mistake, gives ∞.
inline double row_error(const float* row, const std::vector<double>& reference) {
  double error = 0, largest = 0x1p-14;  // the least number that fp16 has with all its digits
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (std::isfinite(reference[i])) largest = std::max(largest, std::fabs(reference[i]));
    const double one = row[i] == reference[i] ? 0 : std::fabs(row[i] - reference[i]);
    error = std::isnan(one) ? INFINITY : std::max(error, one);
  }
  return error / largest;
}

// A few roundings to the type.
inline double tolerance(Dtype dtype) { return dtype == Dtype::fp32 ? 2e-5 : dtype == Dtype::fp16 ? 2e-3 : 1.5e-2; }

inline bool passes(const char* output, double error, double allowed) {
  std::printf("%s: largest error %.1e of a row's largest number, %.1e allowed\n", output, error, allowed);
  return error <= allowed;
}

// Prints the median time of some launches. `operations`: floating-point ones of a launch.
inline void print_time(int repeat, double operations, const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times(static_cast<std::size_t>(repeat));  // ms
  for (float& time : times) {
    CUDA_CHECK(cudaEventRecord(begin));
    launch();
    CUDA_CHECK(cudaEventRecord(end));
    CUDA_CHECK(cudaEventSynchronize(end));
    CUDA_CHECK(cudaEventElapsedTime(&time, begin, end));
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf("time: %.4f ms, the median of %d launches; %.4g TFLOP/s\n", median, repeat, operations / median / 1e9);
}

// Exit status: 0 for PASS, 1 for FAIL, 2 for a bad command line.
inline int exit_status(const std::function<bool()>& run) {
  try {
    const bool right = run();
    std::printf("%s\n", right ? "PASS" : "FAIL");
    return right ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

}  // namespace host
