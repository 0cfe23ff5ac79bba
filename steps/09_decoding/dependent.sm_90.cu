// Step 09: the rungs that begin before the launch before has ended, and the default, which chooses among them. They need
// compute capability 9.0.
#include <type_traits>

#include "steps/09_decoding/07_dependent.cuh"
#include "steps/09_decoding/choice.h"
#include "steps/09_decoding/host.h"

namespace decoding {
namespace {

// Of `tuned_99k`, for devices with less shared memory.
template <int dim>
using SmallTile = RungTile<dim>;

// Where scores have options.
template <template <int> class TileOf>
Rung scored() {
  return std::is_same_v<TileOf<64>, LargeTile<64>> ? scored_rung() : scored_99k_rung();
}

// Calls f(T{}, tile) with the tile for a problem.
template <template <int> class TileOf, class F>
void with_tile(const Attention& a, F f) {
  with_rows<32, 64, 128, 256>(a, [&]<class T, int dim>(T type, device::Constant<dim>) { f(type, TileOf<dim>{}); });
}

template <class T, class K>
void launch_rows(const AttentionLaunch& l, const Work& work, int grid, bool dependent) {
  const Operands<T> o(l);
  runtime::launch(dependent_stream<T, K>,
                  {.grid = blocks(grid), .block = K::threads, .shared_bytes = sizeof(RingSmem<T, K>), .dependent = dependent},
                  l.device_shape(), work, o.q, o.k, o.v, Stream{work.tiles, work.items, nullptr}, Parts<K::dim>{}, o.outputs);
}

template <class T, class K>
void launch_cluster(const AttentionLaunch& l, const Work& work, int size, bool dependent) {
  const Operands<T> o(l);
  runtime::launch(dependent_cluster<T, K>,
                  {.grid = blocks(std::int64_t{work.items} * size),
                   .block = K::threads,
                   .shared_bytes = sizeof(ClusterSmem<T, K>),
                   .cluster = static_cast<unsigned>(size),
                   .dependent = dependent},
                  l.device_shape(), work, o.q, o.k, o.v, o.outputs);
}

template <class T, class K>
void launch_stream(const AttentionLaunch& l, const Work& work, int grid, bool dependent) {
  const Operands<T> o(l);
  const Stream stream = shared_evenly(work);
  const auto parts = parts_of<K::dim>(l);
  runtime::launch(dependent_stream<T, K>,
                  {.grid = blocks(grid), .block = K::threads, .shared_bytes = sizeof(RingSmem<T, K>), .dependent = dependent},
                  l.device_shape(), work, o.q, o.k, o.v, stream, parts, o.outputs);
  runtime::launch(dependent_seams<T, K::dim>, {.grid = blocks(work.items), .block = K::threads, .dependent = dependent},
                  l.device_shape(), work, stream, grid, parts, o.outputs);
}

template <template <int> class TileOf, bool dependent>
void launch_chosen(const AttentionLaunch& l) {
  if (l.shape.has_score_options()) return scored<TileOf>().launch(l);
  with_tile<TileOf>(l.shape, [&]<class T, class K>(T, K) {
    const Work work(l.device_shape(), K::keys);
    const Choice choice = choose(work, multiprocessors());
    if (choice.way == Way::rows) return launch_rows<T, K>(l, work, choice.blocks, dependent);
    if (choice.way == Way::cluster) return launch_cluster<T, K>(l, work, choice.blocks, dependent);
    launch_stream<T, K>(l, work, choice.blocks, dependent);
  });
}

void launch_dependent(const AttentionLaunch& l) {
  with_rows<64, 128>(l.shape, [&]<class T, int dim>(T, device::Constant<dim>) {
    using K = RungTile<dim>;
    launch_cluster<T, K>(l, Work(l.device_shape(), K::keys), most_cluster, true);
  });
}
std::size_t dependent_bytes(const Attention& a) {
  return device::with_at_least<64, 128>(a.dim, [](auto dim) { return sizeof(ClusterSmem<__half, RungTile<dim>>); });
}

template <template <int> class TileOf>
std::size_t chosen_bytes(const Attention& a) {
  return device::with_at_least<32, 64, 128, 256>(a.dim, [](auto dim) { return sizeof(ClusterSmem<__half, TileOf<dim>>); });
}
template <template <int> class TileOf>
std::vector<std::string> kernels_of(const Attention& a) {
  if (a.has_score_options()) return scored<TileOf>().kernels(a);
  std::vector<std::string> kernels;
  with_tile<TileOf>(a, [&]<class T, class K>(T, K) {
    switch (choose(Work(extents_of(a), K::keys), multiprocessors()).way) {
      case Way::rows:
        kernels = {"dependent_stream"};
        break;
      case Way::cluster:
        kernels = {"dependent_cluster"};
        break;
      case Way::stream:
        kernels = {"dependent_stream", "dependent_seams"};
    }
  });
  return kernels;
}
template <template <int> class TileOf>
run::Arrays chosen_arrays(const Attention& a) {
  return a.has_score_options() ? scored<TileOf>().scratch(a) : parts_arrays(a, 2 * std::int64_t{multiprocessors()});
}

}  // namespace

Rung dependent_rung() { return {launch_dependent, dependent_bytes}; }
Rung chosen_rung() {
  return {launch_chosen<LargeTile, false>, chosen_bytes<LargeTile>, chosen_arrays<LargeTile>, kernels_of<LargeTile>};
}
Rung chosen_dependent_rung() {
  return {launch_chosen<LargeTile, true>, chosen_bytes<LargeTile>, chosen_arrays<LargeTile>, kernels_of<LargeTile>};
}
Rung chosen_99k_rung() {
  return {launch_chosen<SmallTile, false>, chosen_bytes<SmallTile>, chosen_arrays<SmallTile>, kernels_of<SmallTile>};
}

}  // namespace decoding
