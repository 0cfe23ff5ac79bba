// Step 09: the rungs whose blocks each take an item.
#include "steps/09_decoding/02_warp_rings.cuh"
#include "steps/09_decoding/host.h"

namespace decoding {
namespace {

// One block an item: kernel(T{}, tile).
template <template <class, class> class Smem, class Kernel>
void launch_items(const AttentionLaunch& l, Kernel kernel_of) {
  with_rows<64, 128>(l.shape, [&]<class T, int dim>(T type, device::Constant<dim>) {
    using K = RungTile<dim>;
    const device::AttentionShape shape = l.device_shape();
    const Work work(shape, K::keys);
    const Operands<T> o(l);
    runtime::launch(kernel_of(type, K{}), {.grid = blocks(work.items), .block = K::threads, .shared_bytes = sizeof(Smem<T, K>)},
                    shape, work, o.q, o.k, o.v, o.outputs);
  });
}
template <template <class, class> class Smem>
std::size_t bytes_of(const Attention& a) {
  return device::with_at_least<64, 128>(a.dim, [](auto dim) { return sizeof(Smem<__half, RungTile<dim>>); });
}

void launch_packed_heads(const AttentionLaunch& l) {
  launch_items<PackedSmem>(l, []<class T, class K>(T, K) { return packed_heads<T, K>; });
}
void launch_warp_rings(const AttentionLaunch& l) {
  launch_items<RingSmem>(l, []<class T, class K>(T, K) { return warp_rings<T, K>; });
}

}  // namespace

Rung packed_heads_rung() { return {launch_packed_heads, bytes_of<PackedSmem>}; }
Rung warp_rings_rung() { return {launch_warp_rings, bytes_of<RingSmem>}; }

}  // namespace decoding
