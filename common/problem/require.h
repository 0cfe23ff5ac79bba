// Refusing what a problem cannot be.
#pragma once

#include <cstdio>
#include <initializer_list>
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

// A tensor, and how many elements it has: {"batch · m · lda", 6e7}.
struct Counted {
  const char* product;
  double elements;
};

// Below it no product of extents overflows a std::int64_t, not even counted in bytes.
inline void require_countable(std::initializer_list<Counted> tensors) {
  for (const auto& [product, elements] : tensors) {
    if (elements < 0x1p58) continue;
    char count[32];
    std::snprintf(count, sizeof count, "%.2g", elements);
    require(false,
            std::string("the problem is too large: ") + product + " is " + count + "; it must be less than 2^58, 2.9e17");
  }
}

}  // namespace problem
