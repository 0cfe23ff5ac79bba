#include <map>
#include <string>

#include "steps/07_block_sparse/host.h"
#include "steps/07_block_sparse/key_plan.cuh"
#include "tests/steps/07_block_sparse/device_plan.h"

namespace tests {
namespace {

using namespace block_sparse;

// What launch_plan needs of a launch of either pass.
struct Launch {
  problem::Attention shape;
  const run::DeviceArrays& arrays;
  device::AttentionShape device_shape() const { return run::device_shape(shape); }
};

// The plan's arrays, downloadable.
class Memory {
 public:
  Memory(const run::Arrays& arrays, const std::vector<run::Given>& given)
      : arrays_(run::DeviceArrays::listed(arrays), [&](const run::Array& array) {
          runtime::Buffer buffer(array.name, run::bytes(array));
          buffer.poison();
          for (const run::Given& one : given) {
            if (one.name == array.name) buffer.upload(one.integers.data(), one.integers.size_bytes());
          }
          return buffers_.insert_or_assign(array.name, std::move(buffer)).first->second.data();
        }) {}
  const run::DeviceArrays& arrays() const { return arrays_; }
  std::vector<int> integers(const std::string& name) const {
    const runtime::Buffer& buffer = buffers_.at(name);
    std::vector<int> values(buffer.bytes() / sizeof(int));
    buffer.download(values.data(), buffer.bytes());
    return values;
  }

 private:
  std::map<std::string, runtime::Buffer> buffers_;
  run::DeviceArrays arrays_;
};

template <template <class> class Row>
DevicePlan made(const problem::Attention& a, const PlanSizes& sizes) {
  std::vector<run::Given> given = run::given_packed(a);
  for (run::Given& one : run::given_sparse(a)) given.push_back(one);
  const Memory memory(run::packed_arrays(a) + run::sparse_arrays(a) + plan_arrays(sizes, a), given);
  const Launch launch{a, memory.arrays()};
  Mask mask = device_mask(launch);
  if (a.sparse && a.sparse->live.empty()) mask.live = nullptr;
  if (a.sparse && a.sparse->streaming.empty()) mask.streaming = nullptr;
  run::with_device_shape(launch, [&](const auto& shape) { launch_plan<Row>(launch, sizes, mask, shape); });
  runtime::synchronize();

  DevicePlan plan{.rows = sizes.rows,
                  .rows_of_head = sizes.rows_of_head,
                  .heads_of_place = sizes.heads_of_place,
                  .tile_size = sizes.tile_size(),
                  .together = sizes.together,
                  .split_above = split_above,
                  .most_parts = most_parts,
                  .most_live_tiles = most_live_tiles(a, sizes.tile_queries, sizes.tile_keys),
                  .split_long_rows = sizes.split_long_rows};
  if (sizes.split_long_rows) plan.split_rows = memory.integers("split_rows");
  const std::vector<int> work = memory.integers("work"), tiles = memory.integers("tiles");
  const int heads = sizes.by_keys ? a.kv_heads : a.heads, query_tiles = ceil_div(a.seq_q, sizes.tile_queries);
  for (int n = 0; n < sizes.items; ++n) {
    const int* x = &work[8 * static_cast<std::size_t>(n)];
    const WorkItem item{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
    if (item.head < 0) {
      ++plan.empty_items;
      continue;
    }
    Item one{item.head / heads, item.head % heads, item.first_of_tile, item.right, item.full, item.left, item.part, {}};
    for (int i = 0; i < item.right + item.full + item.left; ++i) {
      const int entry = i == 0 ? item.entry : tiles[static_cast<std::size_t>(item.first + i)];
      if (sizes.by_keys) {
        const int of_group = entry >> 3;  // as the kernels read it: key_plan.cuh
        one.visits.push_back({one.head * (a.heads / a.kv_heads) + of_group / query_tiles, of_group % query_tiles, entry & 3});
      } else {
        one.visits.push_back({one.head, entry, 0});
      }
    }
    plan.items.push_back(one);
  }
  return plan;
}

}  // namespace

DevicePlan query_plan(const problem::Attention& a, int tile_queries, bool split_long_rows) {
  return made<QueryRow>(a, query_sizes(a, tile_queries, 64, split_long_rows));
}
DevicePlan key_plan(const problem::Attention& a) { return made<KeyRow>(a, key_sizes(a, 64, 128)); }

}  // namespace tests
