// Step 08: the rung whose blocks form clusters, which needs compute capability 9.0.
#include "steps/08_few_tokens/08_cluster.cuh"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

using Tile = ClusterTile<RingTile<1, 8, 2>, 4>;

void launch_cluster(const run::LinearLaunch& l) {
  dim3 grid = grid_of(l.shape, Tile::rows);
  grid.x *= Tile::cluster;
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    launch_kernel<W, A>(l, cluster_product<W, A, TOK, Tile>, grid, Tile::threads, sizeof(ClusterSmem<W, TOK, Tile>),
                        Tile::cluster);
  });
}

}  // namespace

Rung cluster() {
  return {launch_cluster, [](const problem::Linear& g) {
            return with_columns(g.m, [](auto tokens) { return sizeof(ClusterSmem<__half, tokens, Tile>); });
          }};
}

}  // namespace few_tokens
