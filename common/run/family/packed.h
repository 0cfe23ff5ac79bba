// Packed sequences, host side: the shape that kernels take of them, and the kernel that fills it in.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "common/device/block.cuh"
#include "common/device/find_sequences.cuh"
#include "common/device/packed.h"
#include "common/problem/cost.h"
#include "common/run/family/attention.h"
#include "common/runtime/launch.h"

namespace run {

// Calls f with the shape as kernels take it. For packed sequences that is a PackedShape, which a kernel fills in first.
template <class Launch, class F>
void with_device_shape(const Launch& l, F f) {
  if (!l.shape.is_packed()) return f(l.device_shape());
  int *first_token = l.arrays.template get<int>("first_token"), *end_token = l.arrays.template get<int>("end_token");
  runtime::launch(
      device::find_sequences<device::find_threads>,
      {.grid = static_cast<unsigned>(device::ceil_div(l.shape.seq_q, device::find_threads)), .block = device::find_threads},
      l.arrays.template get<int>("cu_seqlens"), static_cast<int>(l.shape.cu_seqlens.size()) - 1, l.shape.seq_q, first_token,
      end_token);
  f(device::PackedShape{l.device_shape(), first_token, end_token});
}

// Calls f with the kernel of a rung K for that shape: K::kernel, or K::packed. A variant without the second refuses packed
// sequences by name; throws std::logic_error where it did not.
template <class K, class Shape, class F>
void with_kernel(const Shape&, F f) {
  if constexpr (!std::is_same_v<Shape, device::PackedShape>) {
    f(K::kernel);
  } else if constexpr (requires { K::packed; }) {
    f(K::packed);
  } else {
    throw std::logic_error("a variant without a kernel for packed sequences was launched with them");
  }
}

// The costs of a variant's kernels; with packed sequences that of find_sequences comes first.
template <class Costs>
Costs with_find_sequences(const problem::Attention& a, Costs costs) {
  if (a.is_packed()) costs.insert(costs.begin(), problem::find_sequences_cost(a));
  return costs;
}

}  // namespace run
