// Step 09: the rung whose blocks form clusters, which needs compute capability 9.0.
#include "steps/09_decoding/06_cluster.cuh"
#include "steps/09_decoding/host.h"

namespace decoding {
namespace {

void launch_cluster(const AttentionLaunch& l) {
  with_rows<64, 128>(l.shape, [&]<class T, int dim>(T, device::Constant<dim>) {
    using K = RungTile<dim>;
    const device::AttentionShape shape = l.device_shape();
    const Work work(shape, K::keys);
    const Operands<T> o(l);
    runtime::launch(cluster<T, K>,
                    {.grid = blocks(std::int64_t{work.items} * most_cluster),
                     .block = K::threads,
                     .shared_bytes = sizeof(ClusterSmem<T, K>),
                     .cluster = most_cluster},
                    shape, work, o.q, o.k, o.v, o.outputs);
  });
}

}  // namespace

Rung cluster_rung() {
  return {launch_cluster, [](const Attention& a) {
            return device::with_at_least<64, 128>(a.dim, [](auto dim) { return sizeof(ClusterSmem<__half, RungTile<dim>>); });
          }};
}

}  // namespace decoding
