// The kernel behind the backward pass that repairs rows, host side. It takes long to compile, and a step needs it once: one
// file of each step includes this.
#pragma once

#include <algorithm>

#include "common/device/backward/non_finite.cuh"
#include "common/launches/backward.h"

namespace backward {

// Behind the others: computes rows again that are not finite, though nothing they depend on is.
template <class T, class Pairs>
static void launch_repair(const run::BackwardLaunch& l, const device::AnyShape& shape, const Pairs& pairs) {
  const std::int64_t words = std::int64_t{shape.batch} * (std::int64_t{shape.kv_heads} * ceil_div(shape.seq_k, 32) +
                                                          std::int64_t{shape.heads} * ceil_div(shape.seq_q, 32));
  // About a chunk for each block, or more where that would take more than four blocks for each of an H100's multiprocessors.
  const auto blocks = static_cast<unsigned>(std::min(ceil_div(words, std::int64_t{words_of_chunk}), std::int64_t{4 * 132}));
  const auto is_wide = [](const auto& x) { return run::has_rows_at(x, 16, sizeof(T)); };
  const bool wide = shape.dim % 8 == 0 && is_wide(l.q) && is_wide(l.k) && is_wide(l.v) && is_wide(l.d_o);
  const RepairInputs<T> in{l.q.as<const T>(),   l.k.as<const T>(), l.v.as<const T>(),
                           l.d_o.as<const T>(), statistics_of(l),  wide};
  runtime::launch(repair_rows<T, Pairs>, {.grid = blocks, .block = 32 * repair_warps, .shared_bytes = sizeof(RepairSmem<T>)},
                  shape, pairs, in, l.dq.as<T>(), l.dk.as<T>(), l.dv.as<T>());
}

}  // namespace backward
