// Single elements of device memory, for variants that compute on the host.
#pragma once

#include <cstdint>

#include "common/problem/dtype.h"

inline void put(problem::Dtype dtype, void* data, std::int64_t element, float value) {
  problem::encode(dtype, &value, 1, static_cast<char*>(data) + element * problem::bytes(dtype));
}

inline float get(problem::Dtype dtype, const void* data, std::int64_t element) {
  float value;
  problem::decode(dtype, static_cast<const char*>(data) + element * problem::bytes(dtype), 1, &value);
  return value;
}
