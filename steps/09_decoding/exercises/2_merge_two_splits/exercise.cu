// Exercise 2 of step 09: blocks split the keys, a warp merges the parts of a row. Yours to write: task.cuh.
#include "../exercise.h"
#include EXERCISE_KERNEL

namespace {

using namespace decoding;

constexpr int most_splits = 32;

// Whatever the number of tiles.
int splits_of_exercise(const Work& work) { return std::max(1, most_splits / work.items); }

// `split_kv`, but what is O of a row without a key is not stored.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) attend_splits(AttentionShape shape, Work work,
                                                               Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                               Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                               int splits, Parts<Tile::dim> parts) {
  auto& smem = device::shared_storage<RingSmem<T, Tile>>();
  const int number = blockIdx.x / splits, part = blockIdx.x - number * splits;
  const Item item = item_of(work, shape, number);
  const TileRange tiles = part_of_tiles(item.keys, part, splits);
  KeyRing<T, Tile> ring(smem, shape, k, v);
  ring.request_first(item, tiles);
  WarpRows<T, Tile::dim> rows;
  rows.begin(shape, work, item, q);
  ring.attend_all(rows, item, tiles);
  ring.merge(rows, item.rows, [&](int row, int column, const SoftmaxState& state, const float4& o) {
    const std::int64_t at = std::int64_t{blockIdx.x} * item_rows + row;
    if (column == 0) store(&parts.states[at], state);
    if (state.l > 0.0f) store(&parts.o[(at * Tile::dim + column) / 4], o);
  });
}

run::Arrays arrays(const Attention& a) {
  const Work work = exercise_work(a);
  return parts_arrays(a, std::int64_t{work.items} * splits_of_exercise(work));
}

void launch(const AttentionLaunch& l) {
  device::with_at_least<64, 128>(l.shape.dim, [&]<int dim>(device::Constant<dim>) {
    using K = RungTile<dim>;
    const device::AttentionShape shape = l.device_shape();
    const Work work = exercise_work(l.shape);
    const int splits = splits_of_exercise(work);
    const Operands<__half> operands(l);
    const Parts<dim> parts = parts_of<dim>(l);
    runtime::launch(
        attend_splits<__half, K>,
        {.grid = blocks(std::int64_t{work.items} * splits), .block = K::threads, .shared_bytes = sizeof(RingSmem<__half, K>)},
        shape, work, operands.q, operands.k, operands.v, splits, parts);
    runtime::launch(exercise::combine<dim>, {.grid = blocks(std::int64_t{work.items} * item_rows), .block = 32}, shape, work,
                    splits, static_cast<const SoftmaxState*>(parts.states), reinterpret_cast<const float*>(parts.o),
                    l.o.as<__half>(), l.lse);
  });
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step =
      exercise_step("exercise_09_2", "How do the parts of a row become one?",
                    {.heads = 8, .kv_heads = 2, .seq_q = 1, .seq_k = 1500, .dim = 64},
                    {.name = "yours",
                     .idea = "a warp merges a row",
                     .scratch = arrays,
                     .cost = [](const problem::Attention& a) { return costs_of(a, "attend_splits", arrays(a)); },
                     .launch = launch});
  return &step;
}
