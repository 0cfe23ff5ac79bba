// A [batch, heads, rows, dim] tensor in device memory, in a layout of choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/runtime.h"
#include "common/device/views.h"
#include "common/problem/dtype.h"
#include "common/problem/tensor.h"

namespace run {

// How heads lie in memory. A kernel reads strides and must not care; with gaps, a read beyond a row or beyond the last key of
// a head meets a NaN instead of its neighbour's values, and a write there is seen.
struct HeadsLayout {
  bool tokens_first = false;  // [batch, rows, heads, dim] instead of [batch, heads, rows, dim]
  bool gaps = false;          // unused elements after each row, each head and each batch entry
};

class HeadsBuffer {
 public:
  // shape [batch, heads, rows, dim]
  HeadsBuffer(const std::string& name, const std::vector<std::int64_t>& shape, problem::Dtype dtype, HeadsLayout layout);

  // Encodes the values in the dtype; gaps become NaN. Throws std::invalid_argument where the shape is another one or a value
  // is not exact in the dtype: the reference must see what the kernel sees.
  void upload(const problem::Tensor& tensor);

  void poison() { buffer_.poison(); }
  problem::Tensor download() const;

  // Nothing was written around the buffer nor, since poison(), into its gaps.
  bool surroundings_intact() const;
  bool guards_intact() const { return buffer_.guards_intact(); }

  template <bool Const>
  device::AnyHeads<Const> view() const {
    return {buffer_.data(), batch_stride_, head_stride_, row_stride_};
  }

 private:
  using Halves = std::vector<std::uint16_t>;  // memory in units of 16 bits: one an element, or two for fp32

  template <class Visit>
  void for_each_row(const Visit& visit) const;
  std::size_t halves_per_element() const { return problem::bytes(dtype_) / sizeof(std::uint16_t); }
  Halves raw() const;

  std::vector<std::int64_t> shape_;
  problem::Dtype dtype_;
  HeadsLayout layout_;
  std::int64_t batch_stride_, head_stride_, row_stride_;  // in elements
  device::Buffer buffer_;
};

}  // namespace run
