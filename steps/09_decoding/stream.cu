// Step 09: the rungs whose blocks go from one item to the next.
#include "steps/09_decoding/05_stream_k.cuh"
#include "steps/09_decoding/host.h"

namespace decoding {
namespace {

constexpr int blocks_per_sm = 2;

void launch_whole_rows(const AttentionLaunch& l) {
  with_rows<32, 64, 128, 256>(l.shape, [&]<class T, int dim>(T, device::Constant<dim>) {
    using K = RungTile<dim>;
    const Work work(l.device_shape(), K::keys);
    const Operands<T> o(l);
    // As many items for each block as the busiest needs: fewer blocks that all have as much.
    const int at_once = stream_blocks(work.items, blocks_per_sm), each = ceil_div(work.items, at_once);
    runtime::launch(stream_k<T, K>,
                    {.grid = blocks(ceil_div(work.items, each)), .block = K::threads, .shared_bytes = sizeof(RingSmem<T, K>)},
                    l.device_shape(), work, o.q, o.k, o.v, Stream{work.tiles, work.items, nullptr}, Parts<dim>{}, o.outputs);
  });
}

void launch_stream_k(const AttentionLaunch& l) {
  if (l.shape.has_score_options()) return scored_99k_rung().launch(l);
  with_rows<32, 64, 128, 256>(l.shape, [&]<class T, int dim>(T, device::Constant<dim>) {
    using K = RungTile<dim>;
    const device::AttentionShape shape = l.device_shape();
    const Work work(l.device_shape(), K::keys);
    const Operands<T> o(l);
    const Stream stream = shared_evenly(work);
    const auto parts = parts_of<dim>(l);
    const int grid = stream_blocks(stream.units, blocks_per_sm);
    runtime::launch(stream_k<T, K>, {.grid = blocks(grid), .block = K::threads, .shared_bytes = sizeof(RingSmem<T, K>)}, shape,
                    work, o.q, o.k, o.v, stream, parts, o.outputs);
    runtime::launch(fix_seams<T, dim>, {.grid = blocks(work.items), .block = K::threads}, shape, work, stream, grid, parts,
                    o.outputs);
  });
}

std::size_t bytes_of(const Attention& a) {
  return device::with_at_least<32, 64, 128, 256>(a.dim, [](auto dim) { return sizeof(RingSmem<__half, RungTile<dim>>); });
}

}  // namespace

Rung whole_rows_rung() { return {launch_whole_rows, bytes_of}; }
Rung stream_k_rung() {
  const auto scratch = [](const Attention& a) {
    if (a.has_score_options()) return scored_99k_rung().scratch(a);
    return parts_arrays(a, std::int64_t{2} * blocks_per_sm * multiprocessors());
  };
  const auto kernels = [](const Attention& a) {
    return a.has_score_options() ? scored_99k_rung().kernels(a) : std::vector<std::string>{"stream_k", "fix_seams"};
  };
  return {launch_stream_k, bytes_of, scratch, kernels};
}

}  // namespace decoding
