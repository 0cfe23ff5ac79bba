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

// Below it no product of extents overflows a std::int64_t, not even counted in bytes.
inline void require_countable(double elements) {
  require(elements < 0x1p58, "the problem is too large: a tensor would have more than 2^58 elements");
}

}  // namespace problem
