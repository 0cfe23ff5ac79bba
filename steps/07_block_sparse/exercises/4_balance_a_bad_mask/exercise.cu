// Exercise 4 of step 07: rows that are cut as you say, blocks that count what they visit, and your merge.
#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "../exercise.h"
#include EXERCISE_KERNEL

namespace {

using namespace block_sparse;
using problem::Attention;

constexpr int threads = 128;  // of a block that merges

int most_items(const PlanSizes& sizes) { return sizes.rows + sizes.most_split_rows(); }  // no rule that is right needs more

// The parts of a row are neighbours.
struct Cut {
  int first, parts;  // work items
};

// One thread cuts all rows. Where the parts are too many, no more work items are written.
__global__ void cut_rows(PlanSizes sizes, int most,
                         const TileList* lists,  // [rows]
                         const int* tiles,
                         Cut* cuts,         // [rows]
                         WorkItem* work) {  // [most]
  int all = 0;
  for (int row = 0; row < sizes.rows; ++row) all += load_list(&lists[row]).count();
  int first = 0;
  for (int row = 0; row < sizes.rows; ++row) {
    const TileList list = load_list(&lists[row]);
    const int parts = exercise::parts_of(list.count(), all, sizes.rows), length = ceil_div(list.count(), max(parts, 1));
    store(reinterpret_cast<int2*>(&cuts[row]), make_int2(first, parts));
    for (int part = 0; part < parts && first < most; ++part, ++first) {
      const int begin = min(part * length, list.count()), end = min(begin + length, list.count());
      const auto within = [&](int from, int to) { return max(min(end, to) - max(begin, from), 0); };
      store_item(&work[first], {list.first + begin, within(0, list.right), within(list.right, list.right + list.full),
                                within(list.right + list.full, list.count()), row / sizes.rows_of_head,
                                row % sizes.rows_of_head * Tile::rows, begin < end ? tiles[list.first + begin] : -1, first});
    }
  }
  for (; first < most; ++first) store_item(&work[first], {0, 0, 0, 0, -1, 0, -1, -1});
}

// A block has a part of a row. Grid: x over work items. Blocks of tile_threads.
__global__ void __launch_bounds__(tile_threads) attend_parts(AttentionShape shape, Mask mask, Plan plan,
                                                             Heads<const __half> q,      // [batch, heads, seq_q, dim]
                                                             Heads<const __half> k,      // [batch, kv_heads, seq_k, dim]
                                                             Heads<const __half> v,      // [batch, kv_heads, seq_k, dim]
                                                             float* part_o,              // [items, tile queries, dim]
                                                             SoftmaxState* part_states,  // [items, tile queries]
                                                             int* visited) {             // [items]
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) {
    if (threadIdx.x == 0) visited[blockIdx.x] = 0;
    return;
  }
  const int head = item.head % shape.heads;
  const QueryTile queries{item.head / shape.heads, head, shape.kv_head(head), item.first_of_tile,
                          min(Tile::rows, shape.seq_q - item.first_of_tile)};
  const int* tiles = plan.tiles + item.first;
  Attend<__half, Tile, true> a(shape, tokens_of(mask, head), queries, k, v);
  if (item.entry >= 0) a.begin(queries, q, k, v, item.entry, nothing_else);
  int n = 0;  // tiles that were visited
  const auto attend_tile = [&](auto masked) {
    const int next = n + 1 < item.count() ? tiles[n + 1] : -1;
    a.attend(tiles[n], next, next >= 0, masked, nothing_else);
    ++n;
  };
#pragma unroll 1
  while (n < item.right) attend_tile(std::true_type{});
#pragma unroll 1
  while (n < item.right + item.full) attend_tile(std::false_type{});
#pragma unroll 1
  while (n < item.count()) attend_tile(std::true_type{});
  if (threadIdx.x == 0) visited[blockIdx.x] = n;
  const std::int64_t first = std::int64_t{item.part} * Tile::rows;
  a.leave(
      item.right + item.left, [&](int m) { return tiles[m < item.right ? m : m + item.full]; }, v, &part_o[first * Tile::dim],
      &part_states[first]);
}

// A thread has an element of O. Grid: x over rows, y over elements of a tile. Blocks of `threads`.
__global__ void __launch_bounds__(threads) merge_rows(AttentionShape shape, PlanSizes sizes,
                                                      const Cut* cuts,                          // [rows]
                                                      const float* part_o,                      // [items, tile queries, dim]
                                                      const SoftmaxState* part_states,          // [items, tile queries]
                                                      Heads<__half> o,                          // [batch, heads, seq_q, dim]
                                                      float* lse) {                             // [batch, heads, seq_q]
  const int n = blockIdx.y * threads + threadIdx.x, i = n / Tile::dim, column = n % Tile::dim;  // i: of the tile
  const int query = static_cast<int>(blockIdx.x) % sizes.rows_of_head * Tile::rows + i;
  const int all_heads = static_cast<int>(blockIdx.x) / sizes.rows_of_head;
  if (query >= shape.seq_q) return;
  const int2 cut = load(reinterpret_cast<const int2*>(&cuts[blockIdx.x]));
  const std::int64_t at = std::int64_t{cut.x} * Tile::rows + i;
  const exercise::Merged merged =
      exercise::merge(cut.y, &part_states[at], Tile::rows, &part_o[at * Tile::dim + column], Tile::rows * Tile::dim);
  store(&o.row(all_heads / shape.heads, all_heads % shape.heads, query)[column], from_float<__half>(merged.o));
  if (column == 0) lse[std::int64_t{all_heads} * shape.seq_q + query] = merged.lse;
}

// ---- what the blocks have counted ----

std::string tiles_text(int tiles) { return std::to_string(tiles) + (tiles == 1 ? " tile" : " tiles"); }

// What is wrong with the rows' parts, or nothing. visited: by each block.
std::string imbalance(const std::vector<Cut>& cuts, const std::vector<int>& visited) {
  const auto of_row = [&](const Cut& cut) {
    return std::accumulate(visited.begin() + cut.first, visited.begin() + cut.first + cut.parts, 0);
  };
  const int rows = static_cast<int>(cuts.size()), tiles = std::accumulate(visited.begin(), visited.end(), 0);
  const int longest = *std::max_element(visited.begin(), visited.end()), limit = std::max(1, ceil_div(4 * tiles, rows));
  if (longest > limit) {
    std::ostringstream text;
    text << "a block visits " << tiles_text(longest) << ", " << std::setprecision(3)
         << static_cast<double>(longest) * rows / tiles << " times the mean of the rows: at most " << limit << " are allowed";
    return text.str();
  }
  for (int row = 0; row < rows; ++row) {
    const int count = of_row(cuts[row]);
    if (cuts[row].parts > std::max(1, ceil_div(count, limit))) {
      return "row " + std::to_string(row) + " has " + tiles_text(count) + " and " + std::to_string(cuts[row].parts) +
             " parts: fewer would do, at most " + std::to_string(limit) + " tiles a part";
    }
  }
  return "";
}

template <class T>
std::vector<T> downloaded(const runtime::Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.download(values.data(), buffer.bytes());
  return values;
}

void launch(const run::AttentionLaunch& l) {
  const PlanSizes sizes = exercise_sizes(l.shape);
  const Mask mask = device_mask(l);
  const int most = most_items(sizes);
  const auto lists = l.arrays.get<TileList>("lists");
  const auto tiles = l.arrays.get<int>("tiles");
  const auto work = l.arrays.get<WorkItem>("parts");
  const auto part_o = l.arrays.get<float>("part_o");
  const auto part_states = l.arrays.get<SoftmaxState>("part_states");
  runtime::Buffer cuts("cuts", sizeof(Cut) * sizes.rows), visited("visited", sizeof(int) * most);
  launch_plan<QueryRow>(l, sizes, mask, l.device_shape(), false);
  runtime::launch(cut_rows, {.grid = 1, .block = 1}, sizes, most, lists, tiles, cuts.as<Cut>(), work);
  runtime::synchronize();
  const std::vector<Cut> cut = downloaded<Cut>(cuts);
  std::int64_t items = 0;
  for (const Cut& row : cut) {
    if (row.parts < 1) return complain("a row has " + std::to_string(row.parts) + " parts");
    items += row.parts;
  }
  if (items > most) {
    return complain(std::to_string(sizes.rows) + " rows have " + std::to_string(items) + " parts; no balance needs more than " +
                    std::to_string(most));
  }
  runtime::launch(attend_parts, {.grid = static_cast<unsigned>(most), .block = tile_threads, .shared_bytes = sizeof(Smem)},
                  l.device_shape(), mask, Plan{tiles, lists, work}, l.q.as<const __half>(), l.k.as<const __half>(),
                  l.v.as<const __half>(), part_o, part_states, visited.as<int>());
  runtime::synchronize();
  const std::string wrong = imbalance(cut, downloaded<int>(visited));
  if (!wrong.empty()) return complain(wrong);
  runtime::launch(merge_rows,
                  {.grid = dim3(static_cast<unsigned>(sizes.rows), Tile::rows * Tile::dim / threads), .block = threads},
                  l.device_shape(), sizes, cuts.as<const Cut>(), part_o, part_states, l.o.as<__half>(), l.lse);
  runtime::synchronize();  // the cuts live as long
}

run::Arrays arrays(const Attention& a) {
  const PlanSizes sizes = exercise_sizes(a);
  const int items = most_items(sizes);
  return plan_arrays(sizes, a) + run::Arrays{run::scratch("parts", run::Element::int32(), {items, 8}),
                                             run::scratch("part_o", problem::Dtype::fp32, {items, Tile::rows, Tile::dim}),
                                             run::scratch("part_states", problem::Dtype::fp32, {items, Tile::rows, 2})};
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step = exercise_step(
      "exercise_07_4", "What helps against one long row?",
      {.name = "yours",
       .idea = "rows in parts, as you cut and merge them",
       .scratch = arrays,
       .cost =
           [](const Attention& a) {
             return std::vector<problem::KernelCost>{
                 {"count_tiles"}, {"add_up"}, {"write_lists"}, {"cut_rows"}, problem::flash_cost(a, "attend_parts"),
                 {"merge_rows"}};
           },
       .launch = launch});
  return &step;
}
