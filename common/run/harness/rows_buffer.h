// An array in device memory whose rows may lie anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/problem/element.h"
#include "common/problem/tensor.h"
#include "common/runtime/runtime.h"

namespace run {

using problem::Element;

// An input: the name of its array, and the values.
struct Given {
  std::string name;
  const problem::Tensor* values = nullptr;
  std::span<const std::int32_t> integers = {};           // in their place, of an array of integers, in C order
  std::shared_ptr<const problem::Tensor> own = nullptr;  // keeps `values`, where nobody else does
};

// A row is a run along the last dimension, contiguous. What is left between rows are gaps: a kernel that reads there meets a
// NaN instead of other rows' values, and a write there is seen.
class RowsBuffer {
 public:
  using Extents = std::vector<std::int64_t>;

  RowsBuffer() = default;
  // shape [..., cols]; strides in elements, one for each dimension but the last; none: there are no gaps.
  RowsBuffer(const std::string& name, Extents shape, Extents strides, Element element);

  static Extents dense_strides(const Extents& shape);
  static std::size_t bytes(const Extents& shape, const Extents& strides, Element element);

  // Encodes the values; gaps become NaN (integers: −1). With `at_most` there may be less along the first dimension: what is
  // missing becomes NaN or −1, too. Throws std::invalid_argument where the shape is another one, where integers are given for
  // numbers or numbers for integers, or where a value is not exact in the type: the reference must see what the kernel sees.
  void upload(const Given& given, bool at_most = false);
  void upload(const problem::Tensor& tensor) { upload(Given{"", &tensor}); }

  void poison() { buffer_.poison(); }
  problem::Tensor download() const { return download(shape_[0]); }
  problem::Tensor download(std::int64_t entries) const;             // so many of the first dimension
  problem::Integers download_integers(std::int64_t entries) const;  // of an array of integers

  // Nothing was written around the buffer nor, since poison(), into its gaps.
  bool surroundings_intact() const;
  bool guards_intact() const { return buffer_.guards_intact(); }

  void* data() const { return buffer_.data(); }
  std::int64_t stride(std::size_t dimension) const { return strides_[dimension]; }  // in elements

 private:
  using Bytes = std::vector<unsigned char>;

  template <class Visit>
  void for_each_row(std::int64_t elements, const Visit& visit) const;
  template <class Values, class Type>
  Values decoded(std::int64_t entries, Type type) const;
  Bytes raw() const;

  Extents shape_;
  Extents strides_;
  Element element_ = problem::Dtype::fp32;
  runtime::Buffer buffer_;
};

}  // namespace run
