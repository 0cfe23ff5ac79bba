// From numbers that are known at run time to template arguments of kernels.
#pragma once

#include <type_traits>

#include "common/device/dialect.h"

namespace device {

// Calls f(T{}) with the element type of a problem.
template <class Dtype, class F>
void with_type(Dtype dtype, F f) {
  if (dtype == Dtype::fp32) return f(float{});
  if (dtype == Dtype::fp16) return f(__half{});
  f(__nv_bfloat16{});
}
template <class Dtype, class F>
void with_16_bit_type(Dtype dtype, F f) {
  if (dtype == Dtype::fp16) return f(__half{});
  f(__nv_bfloat16{});
}

// A compile-time constant as an argument.
template <int n>
using Constant = std::integral_constant<int, n>;

// Calls f with the first of these constants that is at least `value`.
template <int n, int... more, class F>
auto with_at_least(int value, F f) {
  if constexpr (sizeof...(more) > 0) {
    if (value > n) return with_at_least<more...>(value, f);
  }
  return f(Constant<n>{});
}

}  // namespace device
