// Step 08: the rungs with rings in shared memory, whose blocks know nothing of each other.
#include <algorithm>

#include "steps/08_few_tokens/07_split_k.cuh"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

using RingOf3 = RingTile<1, 8, 3>;

std::size_t ring_bytes(const problem::Linear&) { return sizeof(RingSmem<__half, RingOf3>); }

void launch_ring(const run::LinearLaunch& l) {
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    launch_kernel<W, A>(l, ring_product<W, A, TOK, RingOf3>, grid_of(l.shape, RingOf3::rows), RingOf3::threads,
                        sizeof(RingSmem<W, RingOf3>));
  });
}

void launch_split_k(const run::LinearLaunch& l) {
  const int splits = splits_of(l.shape);
  float4* parts = l.arrays.get<float4>("sums of parts");
  const dim3 tiles = grid_of(l.shape, RingOf3::rows);
  const dim3 blocks(tiles.x * static_cast<unsigned>(splits), tiles.y, tiles.z);
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    const Operands<W, A> o = operands<W, A>(l);
    runtime::launch(split_k_product<W, A, TOK, RingOf3>,
                    {.grid = blocks, .block = RingOf3::threads, .shared_bytes = sizeof(RingSmem<W, RingOf3>)}, o.shape,
                    o.tokens, o.weights, splits, parts);
    runtime::launch(add_parts<W, TOK, RingOf3>, {.grid = tiles, .block = RingOf3::threads}, o.shape, splits, parts, o.epilogue);
  });
}

}  // namespace

// As many as give each SM a block, but not more than tiles of k.
int splits_of(const problem::Linear& g) {
  const std::int64_t blocks = ceil_div(g.n, RingOf3::rows) * g.entries();
  const std::int64_t wanted = ceil_div<std::int64_t>(multiprocessors(), blocks);
  return static_cast<int>(std::min<std::int64_t>(wanted, ceil_div(g.k, RingOf3::k)));
}

run::Arrays split_k_arrays(const problem::Linear& g) {
  const int fragments_of_thread = with_columns(g.m, [](auto tokens) { return fragments<RingOf3, tokens>; });
  const std::int64_t tiles = g.entries() * ceil_div(g.n, RingOf3::rows);
  return {run::scratch("sums of parts", problem::Dtype::fp32, {tiles, splits_of(g), fragments_of_thread, RingOf3::threads, 4})};
}

Rung ring() { return {launch_ring, ring_bytes}; }
Rung split_k() { return {launch_split_k, ring_bytes}; }

}  // namespace few_tokens
