// A dense host tensor. Values are held as float whatever the dtype: fp16 and bf16 values are exact in a float.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace problem {

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // C order (the last index moves fastest)

  Tensor() = default;
  explicit Tensor(std::vector<std::int64_t> shape_, float fill = 0.0f)
      : shape(std::move(shape_)), values(static_cast<std::size_t>(count(shape)), fill) {}

  static std::int64_t count(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
};

std::string to_string(const std::vector<std::int64_t>& shape);  // "[2, 3, 4]"

}  // namespace problem
