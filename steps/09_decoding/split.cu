// Step 09: the rungs whose blocks share an item's keys through global memory.
#include "steps/09_decoding/04_last_block.cuh"
#include "steps/09_decoding/host.h"

namespace decoding {
namespace {

constexpr int blocks_per_sm = 2;

Work work_of_rung(const Attention& a) { return Work(extents_of(a), RungTile<64>::keys); }

// Calls f(T{}, tile, work, splits).
template <class F>
void with_splits(const AttentionLaunch& l, F f) {
  with_rows<64, 128>(l.shape, [&]<class T, int dim>(T type, device::Constant<dim>) {
    using K = RungTile<dim>;
    static_assert(K::keys == RungTile<64>::keys, "the size of scratch memory counts on it");
    const Work work = work_of_rung(l.shape);
    f(type, K{}, work, splits_of(work, blocks_per_sm));
  });
}

void launch_split_kv(const AttentionLaunch& l) {
  with_splits(l, [&]<class T, class K>(T, K, const Work& work, int splits) {
    const device::AttentionShape shape = l.device_shape();
    const Operands<T> o(l);
    const auto parts = parts_of<K::dim>(l);
    runtime::launch(
        split_kv<T, K>,
        {.grid = blocks(std::int64_t{work.items} * splits), .block = K::threads, .shared_bytes = sizeof(RingSmem<T, K>)}, shape,
        work, o.q, o.k, o.v, splits, parts);
    runtime::launch(combine<T, K>, {.grid = blocks(work.items), .block = K::threads}, shape, work, splits, parts, o.outputs);
  });
}

void launch_last_block(const AttentionLaunch& l) {
  with_splits(l, [&]<class T, class K>(T, K, const Work& work, int splits) {
    const device::AttentionShape shape = l.device_shape();
    const Operands<T> o(l);
    int* arrived = l.arrays.get<int>("blocks that arrived");
    constexpr int threads = 256;
    runtime::launch(clear_arrived, {.grid = blocks(ceil_div(work.items, threads)), .block = threads}, work.items, arrived);
    runtime::launch(
        last_block<T, K>,
        {.grid = blocks(std::int64_t{work.items} * splits), .block = K::threads, .shared_bytes = sizeof(LastSmem<T, K>)}, shape,
        work, o.q, o.k, o.v, splits, parts_of<K::dim>(l), arrived, o.outputs);
  });
}

template <template <class, class> class Smem>
std::size_t bytes_of(const Attention& a) {
  return device::with_at_least<64, 128>(a.dim, [](auto dim) { return sizeof(Smem<__half, RungTile<dim>>); });
}

run::Arrays split_arrays(const Attention& a) {
  const Work work = work_of_rung(a);
  return parts_arrays(a, std::int64_t{work.items} * splits_of(work, blocks_per_sm));
}
run::Arrays last_arrays(const Attention& a) {
  return split_arrays(a) + run::Arrays{run::scratch("blocks that arrived", run::Element::int32(), {work_of_rung(a).items})};
}

}  // namespace

Rung split_kv_rung() { return {launch_split_kv, bytes_of<RingSmem>, split_arrays}; }
Rung last_block_rung() { return {launch_last_block, bytes_of<LastSmem>, last_arrays}; }

}  // namespace decoding
