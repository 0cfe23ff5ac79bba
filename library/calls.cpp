#include "library/calls.h"

#include <algorithm>
#include <utility>

namespace library {

thread_local std::string last_error;

problem::Dtype dtype_of(const char* field, const char* name) {
  for (const problem::Dtype dtype : {problem::Dtype::fp32, problem::Dtype::fp16, problem::Dtype::bf16}) {
    if (name && name == problem::name(dtype)) return dtype;
  }
  throw std::invalid_argument(std::string(field) + " is '" + (name ? name : "null") + "', which is none of fp32, fp16, bf16");
}

void require_array(const char* name, const void* data, std::size_t alignment) {
  if (data == nullptr) throw std::invalid_argument(std::string(name) + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    throw std::invalid_argument(std::string(name) + " does not begin at a multiple of " + std::to_string(alignment) + " bytes");
  }
}

void Tensor::require() const {
  double elements = static_cast<double>(row);
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] < 0) throw std::invalid_argument(std::string(name) + " has a negative stride");
    elements += static_cast<double>(counts[i] - 1) * static_cast<double>(strides[i]);
  }
  // Every byte has an address: sums and products of strides fit into 64 bits.
  if (elements * static_cast<double>(element) >= 0x1p62) {
    throw std::invalid_argument(std::string(name) + " has strides beyond 2^62 bytes");
  }
}

void Tensor::require_output() const {
  require();
  std::array<std::pair<std::int64_t, std::int64_t>, 3> levels;
  for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = {strides[i], counts[i]};
  std::sort(levels.begin(), levels.end());
  std::int64_t extent = row;  // elements of what has been looked at
  for (const auto& [stride, count] : levels) {
    if (count == 1) continue;
    if (stride < extent) {
      throw std::invalid_argument(std::string(name) + " has rows that overlap (a stride of " + std::to_string(stride) +
                                  " where " + std::to_string(extent) +
                                  " elements lie); it is written, so each needs its own place");
    }
    extent += (count - 1) * stride;
  }
}

}  // namespace library
