// [batch, heads, rows, dim] arrays in a program's list: how they lie in memory, and as kernels take them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/device/shapes.h"
#include "common/run/harness/arrays.h"
#include "common/run/harness/step.h"

namespace run {

// The strides of such an array, in elements: of batch entries, heads and rows.
std::vector<std::int64_t> heads_strides(std::int64_t heads, std::int64_t rows, std::int64_t dim, Layout layout);

template <bool Const>
device::AnyHeads<Const> heads_of(const DeviceArrays& arrays, std::string_view name) {
  const auto& strides = arrays.strides(name);
  return {arrays.data(name), strides[0], strides[1], strides[2]};
}

// Elements from one of its rows to the next; 0 where there is only one.
template <bool Const>
std::int64_t row_distance(const device::AnyHeads<Const>& x, int rows) {
  return rows > 1 ? x.row_stride : 0;
}

// Whether every row, of `element` bytes an element, begins at a multiple of `bytes`.
template <bool Const>
bool has_rows_at(const device::AnyHeads<Const>& x, std::int64_t bytes, std::int64_t element) {
  const auto is_multiple = [&](std::int64_t stride) { return stride % bytes * element % bytes == 0; };
  return reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(bytes) == 0 && is_multiple(x.batch_stride) &&
         is_multiple(x.head_stride) && is_multiple(x.row_stride);
}

}  // namespace run
