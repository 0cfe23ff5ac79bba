// Exercise 2 of step 09: merge two splits, then the next.
//
// Blocks have split the keys of each item. For every row each has stored what it found over its keys, base 2:
//
//     m = max x_j,  l = Σ 2^(x_j − m),  O = Σ 2^(x_j − m) V_j      x: scores · scale · log2(e)
//
// `combine` of the lesson gives an item to a block. Yours gives a row to a warp, so that more SMs have work. Take the parts in
// the order of their keys, and merge each with what you have, by ⊕. Store O / l in fp16, and LSE, which is a natural logarithm:
// ln Σ exp(score). Write ⊕ yourself; do not call device::merge.
//
// There may be one split, and there may be more splits than tiles of keys. And a row need not see the keys of each split. A row
// without a key in a part has the state (−∞, 0) there, and no O was stored. A row may have no key at all; then O is 0 and LSE
// is −∞.
//
// The grader checks O and LSE, and counts sectors: each part is read once, and neighbouring lanes read and store neighbours.
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
  // Yours to write.
  (void)splits, (void)states, (void)parts, (void)o, (void)lse, (void)query;
}

}  // namespace exercise
