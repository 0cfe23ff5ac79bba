// What the C interfaces share: how a call fails, what it asks of a caller's arrays, what a library says of its step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/problem/dtype.h"
#include "common/run/harness/step.h"
#include "library/borrowed.h"

namespace library {

extern thread_local std::string last_error;

// What the call returns; `failed` where it throws, since no exception may leave through a C interface.
template <class Result, class Call>
Result checked(Result failed, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception of an unknown type";
  }
  return failed;
}

// Throws the reason why a variant does not take a problem, if there is one.
template <class Variant>
void refuse(const Variant& variant, const std::optional<std::string>& reason) {
  if (reason) throw std::invalid_argument(variant.name + " " + *reason);
}

// A type by its name. Throws std::invalid_argument, naming the field.
problem::Dtype dtype_of(const char* field, const char* name);

// Throws std::invalid_argument for null, and for an array that begins elsewhere than at a multiple of so many bytes.
void require_array(const char* name, const void* data, std::size_t alignment);

// A tensor of the caller's for one launch: rows whose elements lie side by side, in three dimensions.
struct Tensor {
  const char* name;
  void* data;
  std::array<std::int64_t, 3> strides;  // in elements
  std::array<std::int64_t, 3> counts;
  std::int64_t row;      // elements
  std::int64_t element;  // bytes

  // Throw std::invalid_argument.
  void require() const;
  // Of what kernels write: no element lies in two rows. Rows must lie one in another: entries of a smaller stride all lie
  // between two of a larger one.
  void require_output() const;

  Rows bytes() const {
    return {data,         counts[0], counts[1], counts[2], strides[0] * element, strides[1] * element, strides[2] * element,
            row * element};
  }
};

// Bytes without gaps.
inline Rows dense(void* data, std::int64_t bytes) { return {data, 1, 1, 1, bytes, bytes, bytes, bytes}; }

// The step, its default variant, those to try where that does not serve, its variants, and the toolkit that built the library.
template <class Step>
nlohmann::ordered_json describe(const Step& step) {
  nlohmann::ordered_json variants = nlohmann::ordered_json::array();
  for (const auto& variant : step.variants) {
    variants.push_back({{"name", variant.name},
                        {"idea", variant.idea},
                        {"supports", to_string(variant.supports)},
                        {"compute_capability", variant.compute_capability.number},
                        {"alone", variant.compute_capability.only},
                        {"deterministic", variant.deterministic}});
  }
  std::vector<std::string> best{step.default_variant};
  best.insert(best.end(), step.next_best.begin(), step.next_best.end());
  return {
      {"step", step.name}, {"default", step.default_variant}, {"best", best}, {"toolkit", toolkit()}, {"variants", variants}};
}

}  // namespace library
