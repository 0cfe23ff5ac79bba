// A [batch, heads, rows, dim] tensor in device memory, in a layout of choice.
#pragma once

#include "common/device/views.h"
#include "common/run/rows_buffer.h"

namespace run {

// How heads lie in memory. A kernel reads strides and must not care; with gaps, a read beyond a row or beyond the last key of
// a head meets a NaN instead of its neighbour's values, and a write there is seen.
struct HeadsLayout {
  bool tokens_first = false;  // [batch, rows, heads, dim] instead of [batch, heads, rows, dim]
  bool gaps = false;          // unused elements after each row, each head and each batch entry
  bool odd = false;           // so many of them that most rows begin at odd elements
};

class HeadsBuffer : public RowsBuffer {
 public:
  // shape [batch, heads, rows, dim]
  HeadsBuffer(const std::string& name, const std::vector<std::int64_t>& shape, problem::Dtype dtype, HeadsLayout layout);

  template <bool Const>
  device::AnyHeads<Const> view() const {
    return {data(), stride(0), stride(1), stride(2)};
  }
};

}  // namespace run
