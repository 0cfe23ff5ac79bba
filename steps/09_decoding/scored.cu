// Step 09: stream_k where scores have options, or the cache has lengths (common/device/score_options.h).
#include "common/run/family/score_options.h"
#include "steps/09_decoding/05_stream_k.cuh"
#include "steps/09_decoding/host.h"

namespace decoding {
namespace {

constexpr const char* tiles_before = "tiles before each entry";

template <template <int> class TileOf, int blocks_per_sm>
void launch_scored(const AttentionLaunch& l) {
  with_rows<32, 64, 128, 256>(l.shape, [&]<class T, int dim>(T, device::Constant<dim>) {
    using K = TileOf<dim>;
    using Shape = device::ScoredShape<T>;
    const Shape shape = run::scored_shape<T>(l);
    const Work work(shape, K::keys);
    Stream stream = shared_evenly(work);
    int grid = stream_blocks(stream.units, blocks_per_sm);
    if (shape.lengths != nullptr) {  // how many tiles there are, only the device knows: those without one return
      grid = multiprocessors() * blocks_per_sm;
      auto* before = l.arrays.get<std::int64_t>(tiles_before);
      runtime::launch(count_tiles<T>, {.grid = 1, .block = 32}, shape, work, before);
      stream.tiles_before = before;
    }
    const Operands<T> o(l);
    const auto parts = parts_of<dim>(l);
    runtime::launch(stream_k<T, K, Shape>, {.grid = blocks(grid), .block = K::threads, .shared_bytes = sizeof(RingSmem<T, K>)},
                    shape, work, o.q, o.k, o.v, stream, parts, o.outputs);
    runtime::launch(fix_seams<T, dim, Shape>, {.grid = blocks(work.items), .block = K::threads}, shape, work, stream, grid,
                    parts, o.outputs);
  });
}

template <template <int> class TileOf>
std::size_t bytes_of(const Attention& a) {
  return device::with_at_least<32, 64, 128, 256>(a.dim, [](auto dim) { return sizeof(RingSmem<__half, TileOf<dim>>); });
}

template <int blocks_per_sm>
run::Arrays arrays_of(const Attention& a) {
  const run::Arrays parts = parts_arrays(a, std::int64_t{2} * blocks_per_sm * multiprocessors());
  if (a.lengths.empty()) return parts;
  return parts + run::Arrays{run::scratch(tiles_before, run::Element::int32(), {a.batch + 1, 2})};
}

std::vector<std::string> kernels_of(const Attention& a) {
  if (a.lengths.empty()) return {"stream_k", "fix_seams"};
  return {"count_tiles", "stream_k", "fix_seams"};
}

}  // namespace

Rung scored_rung() { return {launch_scored<LargeTile, 1>, bytes_of<LargeTile>, arrays_of<1>, kernels_of}; }
Rung scored_99k_rung() { return {launch_scored<RungTile, 2>, bytes_of<RungTile>, arrays_of<2>, kernels_of}; }

}  // namespace decoding
