// Options that change the shape that kernels take, host side: packed sequences, with the kernel that finds their ends, and
// dropout, with the kernel that writes its mask.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "common/device/dialect.h"
#include "common/device/dropout.h"
#include "common/device/find_sequences.cuh"
#include "common/device/score_options.h"
#include "common/device/shapes.h"
#include "common/device/write_mask.cuh"
#include "common/problem/cost.h"
#include "common/run/family/attention.h"
#include "common/runtime/launch.h"

namespace run {

// Calls f with the shape, or with a Dropped of it. The mask is written first, where the problem asks for it.
template <class Launch, class Shape, class F>
void with_dropout(const Launch& l, const Shape& shape, F f) {
  if (l.shape.dropout == 0) return f(shape);
  const device::Dropout dropout = device::make_dropout(l.shape.dropout_seed, l.shape.dropout);
  if (l.shape.writes_mask) {
    const std::int64_t pairs = static_cast<std::int64_t>(l.shape.batch) * l.shape.heads * l.shape.seq_q * l.shape.seq_k;
    runtime::launch(device::write_mask<device::mask_threads>,
                    {.grid = static_cast<unsigned>(device::ceil_div<std::int64_t>(pairs, device::mask_threads)),
                     .block = device::mask_threads},
                    dropout, l.shape.batch, l.shape.heads, l.shape.seq_q, l.shape.seq_k, l.arrays.template get<__half>("mask"));
  }
  f(device::Dropped<Shape>{shape, dropout});
}

// Finds the ends of each token's sequence, where sequences are packed. Static, as all launches (common/launches/backward.h).
template <class Launch>
static void launch_find_sequences(const Launch& l) {
  if (!l.shape.is_packed()) return;
  runtime::launch(
      device::find_sequences<device::find_threads>,
      {.grid = static_cast<unsigned>(device::ceil_div(l.shape.seq_q, device::find_threads)), .block = device::find_threads},
      l.arrays.template get<int>("cu_seqlens"), static_cast<int>(l.shape.cu_seqlens.size()) - 1, l.shape.seq_q,
      l.arrays.template get<int>("first_token"), l.arrays.template get<int>("end_token"));
}

// Calls f with the shape as kernels take it that do not care for dropout: a PackedShape, once its sequences are found, or an
// AttentionShape.
template <class Launch, class F>
void with_sequences(const Launch& l, F f) {
  if (!l.shape.is_packed()) return f(l.device_shape());
  f(device::PackedShape{l.device_shape(), l.arrays.template get<int>("first_token"), l.arrays.template get<int>("end_token")});
}

// Calls f with the shape as kernels take it: the same, or with dropout a Dropped of it. Sequences are found before.
template <class Launch, class F>
void with_found_shape(const Launch& l, F f) {
  with_sequences(l, [&](const auto& shape) { with_dropout(l, shape, f); });
}

// The same, of a launch that finds the sequences itself.
template <class Launch, class F>
void with_device_shape(const Launch& l, F f) {
  launch_find_sequences(l);
  with_found_shape(l, f);
}

// Calls f with the kernel of a rung K for that shape: K::kernel, K::packed, K::dropped or K::scored. A variant without one of
// the last three refuses such requests by name; throws std::logic_error where it did not.
template <class K, class Shape, class F>
void with_kernel(const Shape&, F f) {
  constexpr bool is_packed = std::is_same_v<Shape, device::PackedShape>;
  if constexpr (std::is_same_v<Shape, device::AttentionShape>) return f(K::kernel);
  if constexpr (is_packed && requires { K::packed; }) return f(K::packed);
  if constexpr (std::is_same_v<Shape, device::Dropped<device::AttentionShape>> && requires { K::dropped; }) {
    return f(K::dropped);
  }
  if constexpr (device::has_score_options<Shape> && requires { K::scored; }) return f(K::scored);
  throw std::logic_error("a variant was launched with an option for which it has no kernel");
}

// The costs of a variant's kernels; those of find_sequences, of a plan and of write_mask come first, where they are launched.
template <class Costs>
Costs with_options(const problem::Attention& a, Costs costs, const Costs& plan = {}) {
  if (a.writes_mask) costs.insert(costs.begin(), problem::mask_cost(a));
  costs.insert(costs.begin(), plan.begin(), plan.end());
  if (a.is_packed()) costs.insert(costs.begin(), problem::find_sequences_cost(a));
  return costs;
}

}  // namespace run
