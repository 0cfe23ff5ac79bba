// Dense arrays of the host. Numbers are held as float whatever the dtype: fp16 and bf16 values are exact in a float. Whole
// numbers are held as int32.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace problem {

template <class Value>
struct TensorOf {
  std::vector<std::int64_t> shape;
  std::vector<Value> values;  // C order (the last index moves fastest)

  TensorOf() = default;
  explicit TensorOf(std::vector<std::int64_t> shape_, Value fill = {})
      : shape(std::move(shape_)), values(static_cast<std::size_t>(count(shape)), fill) {}

  static std::int64_t count(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
};
using Tensor = TensorOf<float>;
using Integers = TensorOf<std::int32_t>;

std::string to_string(const std::vector<std::int64_t>& shape);  // "[2, 3, 4]"

}  // namespace problem
