// What the references of all problems share. Not for others: they include attention.h or gemm.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace reference {

inline constexpr double fp32_unit = 0x1p-24;  // u: half the distance between 1 and its neighbour

// Runs body(0) … body(count − 1) on all cores. Every call must write to places of its own.
template <class Body>
void parallel_for(std::int64_t count, const Body& body) {
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;  // joined at the end of the function
  for (std::int64_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(work);
  work();
}

// Of the elements that are finite.
inline double norm(const float* x, int count) {
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    if (std::isfinite(x[i])) squares += static_cast<double>(x[i]) * x[i];
  }
  return std::sqrt(squares);
}

inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("reference: " + message);
}

template <class T>
void require_size(std::span<const T> tensor, std::int64_t size, const char* name) {
  require(std::ssize(tensor) == size,
          std::string(name) + " has " + std::to_string(tensor.size()) + " values, not " + std::to_string(size));
}

}  // namespace reference
