// Step 08: the rung whose blocks form clusters, which needs compute capability 9.0.
#include "steps/08_few_tokens/08_cluster.cuh"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

void launch_cluster(const run::LinearLaunch& l) {
  dim3 grid = grid_of(l.shape, ClusterOf4::rows);
  grid.x *= ClusterOf4::cluster;
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    launch_kernel<W, A>(l, cluster_product<W, A, TOK, ClusterOf4>, grid, ClusterOf4::threads,
                        sizeof(ClusterSmem<W, TOK, ClusterOf4>), ClusterOf4::cluster);
  });
}

}  // namespace

Rung cluster() {
  return {launch_cluster, [](const problem::Linear& g) {
            return with_columns(g.m, [](auto tokens) { return sizeof(ClusterSmem<__half, tokens, ClusterOf4>); });
          }};
}

}  // namespace few_tokens
