// Step 06, host side: into how many parts the query heads that share keys are split.
#pragma once

#include <cstdint>

#include "common/device/dialect.h"
#include "common/problem/backward.h"

namespace backward {

inline bool is_tuned_dim(int dim) { return dim == 32 || dim == 64 || dim == 96 || dim == 128; }

// Into how many parts the query heads of a key/value head are split; 1: they are not. As few as fill an H100, whose 132
// multiprocessors have two blocks of tuned_64 each, or one of tuned_128: more parts must make the kernel 10 % faster.
inline int parts_of(const problem::Backward& a) {
  const int group = a.heads / a.kv_heads;
  if (group == 1 || !is_tuned_dim(a.dim) || a.is_packed() || a.dropout != 0) return 1;
  constexpr int keys = 128;  // of a block of either rung
  const std::int64_t places = a.dim <= 64 ? 2 * 132 : 132;
  const std::int64_t blocks = std::int64_t{a.batch} * a.kv_heads * device::ceil_div(a.seq_k, keys);
  // The time of the kernel; 1 is what one head costs a block at most. Blocks of one length run in rounds. With a causal mask
  // they have all lengths up to the longest, half of it on average. The last block begins when all places are busy.
  const auto time = [&](int parts) {
    const int heads = group / parts;  // of a block
    if (!a.causal || a.window > 0) return static_cast<double>(device::ceil_div(blocks * parts, places) * heads);
    return static_cast<double>(blocks * group) / static_cast<double>(2 * places) + heads;
  };
  int parts = 1;
  for (int more = 2; more <= group && (more - 1) * blocks < 16 * places; ++more) {
    if (group % more == 0 && 1.1 * time(more) < time(parts)) parts = more;
  }
  return parts;
}

}  // namespace backward
