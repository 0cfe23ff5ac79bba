// Exercise 2 of step 09: our solution.
//
// A lane has every 32nd column. Of the first part that has a key, the factor of what was there before is 2^−∞ = 0. No two
// maxima that are −∞ meet, because parts without a key are left out.
#pragma once

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"
#include "steps/09_decoding/items.h"

namespace exercise {

using namespace decoding;
using device::from_float;
using device::Heads;
using device::load;
using device::SoftmaxState;
using device::store;

// Grid: over rows of items. Block 16 n + r is one warp, and has row r of item n. dim is 64 or 128.
template <int dim>
__global__ void __launch_bounds__(32) combine(AttentionShape shape, Work work, int splits,
                                              const SoftmaxState* states,  // [items, splits, 16]
                                              const float* parts,          // [items, splits, 16, dim]: O, not divided by l
                                              Heads<__half> o,             // [batch, heads, seq_q, dim]
                                              float* lse) {                // [batch, heads, seq_q]
  const int number = blockIdx.x / item_rows, row = blockIdx.x % item_rows;
  const Item item = item_of(work, shape, number);
  if (row >= item.rows) return;
  const Query query = query_of(work, item, row);
  constexpr int lane_columns = dim / 32;
  const int lane = threadIdx.x;
  SoftmaxState all;
  float sum[lane_columns] = {};
  for (int part = 0; part < splits; ++part) {
    const std::int64_t at = (std::int64_t{number} * splits + part) * item_rows + row;
    const SoftmaxState state = load(&states[at]);
    if (state.l == 0.0f) continue;  // it would change nothing, and has no O
    const float m = fmaxf(all.m, state.m), kept = exp2f(all.m - m), added = exp2f(state.m - m);
    all = {m, kept * all.l + added * state.l};
    for (int i = 0; i < lane_columns; ++i) sum[i] = kept * sum[i] + added * parts[at * dim + lane + 32 * i];
  }
  const bool any = all.l > 0.0f;
  __half* o_row = o.row(item.batch, query.head, query.i);
  for (int i = 0; i < lane_columns; ++i) store(&o_row[lane + 32 * i], from_float<__half>(any ? sum[i] / all.l : 0.0f));
  if (lane == 0) {
    const std::int64_t at = (std::int64_t{item.batch} * shape.heads + query.head) * shape.seq_q + query.i;
    lse[at] = any ? device::ln_2 * all.m + logf(all.l) : -INFINITY;
  }
}

}  // namespace exercise
