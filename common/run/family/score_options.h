// Options of scores, host side: the shape that kernels take.
#pragma once

#include <bit>

#include "common/device/score_options.h"
#include "common/run/family/attention.h"

namespace run {

template <class T>
device::ScoredShape<T> scored_shape(const AttentionLaunch& l) {
  const problem::Attention& a = l.shape;
  device::ScoredShape<T> shape{l.device_shape(), a.softcap, device::alibi_slopes(a.alibi, a.heads), {}, nullptr, nullptr, {}};
  if (a.bias) {
    const std::vector<std::int64_t>&extents = a.bias->shape, &strides = l.arrays.strides("bias");
    const auto stride = [&](int n) { return extents[n] == 1 ? 0 : strides[n]; };
    shape.bias = {l.arrays.get<const T>("bias"), stride(0), stride(1), stride(2)};
  }
  if (a.sinks) shape.sinks = l.arrays.get<const float>("sinks");
  if (!a.lengths.empty()) shape.lengths = l.arrays.get<const int>("lengths");
  if (a.pages) {
    shape.pages = {l.arrays.get<const int>("pages"), problem::columns_of(*a.pages, a),
                   std::countr_zero(static_cast<unsigned>(a.pages->size))};
  }
  return shape;
}

// Calls f with the shape as kernels for elements of type T take it.
template <class T, class F>
void with_score_options(const AttentionLaunch& l, F f) {
  if (!l.shape.has_score_options()) return f(l.device_shape());
  f(scored_shape<T>(l));
}

}  // namespace run
