// A tensor in device memory whose rows may lie anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/runtime.h"
#include "common/problem/dtype.h"
#include "common/problem/tensor.h"

namespace run {

// A row is a run along the last dimension, contiguous. What is left between rows are gaps: a kernel that reads there meets a
// NaN instead of other rows' values, and a write there is seen.
class RowsBuffer {
 public:
  // shape [..., cols]; strides in elements, one for each dimension but the last.
  RowsBuffer(const std::string& name, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, problem::Dtype dtype);

  // Encodes the values in the dtype; gaps become NaN. Throws std::invalid_argument where the shape is another one or a value
  // is not exact in the dtype: the reference must see what the kernel sees.
  void upload(const problem::Tensor& tensor);

  void poison() { buffer_.poison(); }
  problem::Tensor download() const;

  // Nothing was written around the buffer nor, since poison(), into its gaps.
  bool surroundings_intact() const;
  bool guards_intact() const { return buffer_.guards_intact(); }

  void* data() const { return buffer_.data(); }
  std::int64_t stride(std::size_t dimension) const { return strides_[dimension]; }  // in elements

 private:
  using Halves = std::vector<std::uint16_t>;  // memory in units of 16 bits: one an element, or two for fp32

  template <class Visit>
  void for_each_row(const Visit& visit) const;
  std::size_t halves_per_element() const { return problem::bytes(dtype_) / sizeof(std::uint16_t); }
  Halves raw() const;

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  problem::Dtype dtype_;
  device::Buffer buffer_;
};

}  // namespace run
