// An array in device memory whose rows may lie anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/tensor.h"
#include "common/runtime/runtime.h"

namespace run {

// What an array holds: numbers in one of the types that problems compute with, or integers of 32 bits (tables of blocks,
// offsets).
class Element {
 public:
  constexpr Element(problem::Dtype dtype) : dtype_(dtype) {}
  static constexpr Element int32() { return Element(); }

  constexpr bool is_integer() const { return !dtype_; }
  problem::Dtype dtype() const { return dtype_.value(); }  // of numbers
  std::size_t bytes() const { return dtype_ ? problem::bytes(*dtype_) : sizeof(std::int32_t); }
  std::string_view name() const { return dtype_ ? problem::name(*dtype_) : "int32"; }

 private:
  constexpr Element() = default;
  std::optional<problem::Dtype> dtype_;
};

// An input: the name of its array, and the values.
struct Given {
  std::string name;
  const problem::Tensor* values = nullptr;
  std::span<const std::int32_t> integers = {};  // in their place, of an array of integers, in C order
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

  // Encodes the values; gaps become NaN. With `at_most` there may be less along the first dimension: what is missing becomes
  // NaN (integers: −1). Throws std::invalid_argument where the shape is another one or a value is not exact in the type: the
  // reference must see what the kernel sees.
  void upload(const Given& given, bool at_most = false);
  void upload(const problem::Tensor& tensor) { upload(Given{"", &tensor}); }

  void poison() { buffer_.poison(); }
  problem::Tensor download() const;  // throws std::logic_error for integers

  // Nothing was written around the buffer nor, since poison(), into its gaps.
  bool surroundings_intact() const;
  bool guards_intact() const { return buffer_.guards_intact(); }

  void* data() const { return buffer_.data(); }
  std::int64_t stride(std::size_t dimension) const { return strides_[dimension]; }  // in elements

 private:
  using Halves = std::vector<std::uint16_t>;  // memory in units of 16 bits: one an element, or two

  template <class Visit>
  void for_each_row(std::int64_t rows, const Visit& visit) const;
  std::int64_t rows() const { return problem::Tensor::count(shape_) / shape_.back(); }
  std::size_t halves_per_element() const { return element_.bytes() / sizeof(std::uint16_t); }
  Halves raw() const;

  Extents shape_;
  Extents strides_;
  Element element_ = problem::Dtype::fp32;
  runtime::Buffer buffer_;
};

}  // namespace run
