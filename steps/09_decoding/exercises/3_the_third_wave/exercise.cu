// Exercise 3 of step 09: `split_kv` with as many splits as you say. Run it, read what it says, mend task.cuh.
#include <climits>

#include "../exercise.h"
#include EXERCISE_KERNEL

namespace {

using namespace decoding;

constexpr int places = 24;      // blocks that the exercise's device runs at a time
constexpr int block_tiles = 2;  // how long a block takes beside its tiles

std::string text_of(int count, const char* thing) { return std::to_string(count) + " " + thing + (count == 1 ? "" : "s"); }

int waves(int items, int splits, int room) { return ceil_div(items * splits, room); }
int lasts(int items, int tiles, int splits, int room) {
  return waves(items, splits, room) * (ceil_div(tiles, splits) + block_tiles);
}

// What is wrong with the rule for these items, or nothing.
std::string fault(int items, int tiles, int room) {
  const std::string problem =
      text_of(items, "item") + " of " + text_of(tiles, "tile") + ", room for " + text_of(room, "block") + ": ";
  const int splits = exercise::splits_of(items, tiles, room);
  if (splits < 1 || splits > tiles) return problem + text_of(splits, "split") + ", and not 1 … " + std::to_string(tiles);
  int least = INT_MAX;
  for (int other = 1; other <= tiles; ++other) least = std::min(least, lasts(items, tiles, other, room));
  const int yours = lasts(items, tiles, splits, room);
  if (yours == least) return "";
  return problem + text_of(splits, "split") + ", so " + text_of(items * splits, "block") + " in " +
         text_of(waves(items, splits, room), "wave") + ". They last as long as " + text_of(yours, "tile") + ", where " +
         std::to_string(least) + " would do";
}
std::string any_fault(const Work& work) {
  if (const std::string here = fault(work.items, work.tiles, places); !here.empty()) return here;
  for (const int room : {1, 2, 24, 132, 264}) {
    for (const int items : {1, 2, 3, 5, 8, 13, 24, 25, 40, 100, 132, 133, 264, 265, 320}) {
      for (const int tiles : {1, 2, 3, 7, 8, 13, 16, 47, 64, 500}) {
        if (const std::string there = fault(items, tiles, room); !there.empty()) return there;
      }
    }
  }
  return "";
}

int splits_within(const Work& work) { return std::clamp(exercise::splits_of(work.items, work.tiles, places), 1, work.tiles); }
run::Arrays arrays(const Attention& a) {
  const Work work = exercise_work(a);
  return parts_arrays(a, std::int64_t{work.items} * splits_within(work));
}

void launch(const AttentionLaunch& l) {
  device::with_at_least<64, 128>(l.shape.dim, [&]<int dim>(device::Constant<dim>) {
    using K = RungTile<dim>;
    const device::AttentionShape shape = l.device_shape();
    const Work work = exercise_work(l.shape);
    const int splits = splits_within(work);
    const Operands<__half> o(l);
    const Parts<dim> parts = parts_of<dim>(l);
    runtime::launch(
        split_kv<__half, K>,
        {.grid = blocks(std::int64_t{work.items} * splits), .block = K::threads, .shared_bytes = sizeof(RingSmem<__half, K>)},
        shape, work, o.q, o.k, o.v, splits, parts);
    if (const std::string why = any_fault(work); !why.empty()) return complain(why);
    runtime::launch(combine<__half, K>, {.grid = blocks(work.items), .block = K::threads}, shape, work, splits, parts,
                    o.outputs);
  });
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step =
      exercise_step("exercise_09_3", "How many splits are the fastest?",
                    {.batch = 13, .heads = 2, .kv_heads = 1, .seq_q = 1, .seq_k = 1500, .dim = 64},
                    {.name = "yours",
                     .idea = "split_kv, with your number of splits",
                     .scratch = arrays,
                     .cost = [](const problem::Attention& a) { return costs_of(a, "split_kv", arrays(a)); },
                     .launch = launch});
  return &step;
}
