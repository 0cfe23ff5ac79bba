// Refusing what a problem cannot be.
#pragma once

#include <stdexcept>
#include <string>

namespace problem {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

inline void require_positive(const char* field, int value) {
  require(value >= 1, std::string(field) + " is " + std::to_string(value) + "; it must be 1 or more");
}

// Of extents and strides: kernels count in ints, round up to tiles and blocks, and add two of them.
inline constexpr int max_extent = 1 << 30;

inline void require_extent(const char* field, int value) {
  require_positive(field, value);
  require(value <= max_extent,
          std::string(field) + " is " + std::to_string(value) + "; it must be at most " + std::to_string(max_extent));
}

// Below it no product of extents overflows a std::int64_t, not even counted in bytes.
inline void require_countable(double elements) {
  require(elements < 0x1p58, "the problem is too large: a tensor would have more than 2^58 elements");
}

}  // namespace problem
