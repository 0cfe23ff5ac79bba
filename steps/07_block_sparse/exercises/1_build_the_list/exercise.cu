// Exercise 1 of step 07: your lists against a model on the host, which looks at every pair; then a loop that walks along them.
#include "../exercise.h"
#include EXERCISE_KERNEL

namespace {

using namespace block_sparse;
using problem::Attention;

// `two_loops`, for heads that stream by token, too. Grid: x over tiles of queries, y over heads, z over the batch.
__global__ void __launch_bounds__(tile_threads) walk_lists(AttentionShape shape, Mask mask, Plan plan,
                                                           Heads<const __half> q,  // [batch, heads, seq_q, dim]
                                                           Heads<const __half> k,  // [batch, kv_heads, seq_k, dim]
                                                           Heads<const __half> v,  // [batch, kv_heads, seq_k, dim]
                                                           Heads<__half> o,        // [batch, heads, seq_q, dim]
                                                           float* lse) {           // [batch, heads, seq_q]
  const QueryTile queries = query_tile(shape, Tile::rows);
  const TileList list = load_list(&plan.lists[row_of(shape, queries)]);
  const int* tiles = plan.tiles + list.first;
  Attend<__half, Tile, true> a(shape, tokens_of(mask, queries.head), queries, k, v);
  if (list.count() > 0) a.begin(queries, q, k, v, tiles[0], nothing_else);
  int n = 0;
  const auto attend_tile = [&](auto masked) {
    const int next = n + 1 < list.count() ? tiles[n + 1] : -1;
    a.attend(tiles[n], next, next >= 0, masked, nothing_else);
    ++n;
  };
#pragma unroll 1
  while (n < list.right) attend_tile(std::true_type{});
#pragma unroll 1
  while (n < list.right + list.full) attend_tile(std::false_type{});
#pragma unroll 1
  while (n < list.count()) attend_tile(std::true_type{});
  a.finish(
      list.right + list.left, [&](int m) { return tiles[m < list.right ? m : m + list.full]; }, v, o, lse);
}

// ---- the model ----

struct Row {
  std::vector<int> right, full, left;
};
Row row_of(const Attention& a, const problem::SparseMask& mask, int batch, int head, int first) {
  Row row;
  const int end = std::min(first + Tile::rows, a.seq_q);
  for (int tile = most_tiles(a) - 1; tile >= 0; --tile) {
    int pairs = 0;
    for (int i = first; i < end; ++i) {
      for (int j = std::max(tile * Tile::keys, a.first_key(i)); j < std::min((tile + 1) * Tile::keys, a.last_key(i)); ++j) {
        pairs += problem::sees(mask, a, batch, head, i, j);
      }
    }
    if (pairs == 0) continue;
    // Keys that do not exist need a mask, so such a tile is partial.
    (pairs == (end - first) * Tile::keys ? row.full : row.full.empty() ? row.right : row.left).push_back(tile);
  }
  return row;
}

std::string text(const std::vector<int>& numbers) {
  std::string text;
  for (const int n : numbers) text += ' ' + (n == static_cast<int>(runtime::poison_word) ? "(unwritten)" : std::to_string(n));
  return '[' + text + " ]";
}

// What is wrong with the lists, or nothing.
std::string difference(const Attention& a, const PlanSizes& sizes, const std::vector<int>& lists,
                       const std::vector<int>& tiles) {
  const problem::SparseMask mask = mask_of(a);
  for (int row = 0; row < sizes.rows; ++row) {
    const int head = row / sizes.rows_of_head, most = most_tiles(a);
    const Row expected = row_of(a, mask, head / a.heads, head % a.heads, row % sizes.rows_of_head * Tile::rows);
    const auto size = [](const std::vector<int>& numbers) { return static_cast<int>(numbers.size()); };
    const std::vector<int> list = {row * most, size(expected.right), size(expected.full), size(expected.left)};
    const std::string which = "list of row " + std::to_string(row) + ": ";
    const std::vector<int> yours(lists.begin() + std::ptrdiff_t{4} * row, lists.begin() + std::ptrdiff_t{4} * row + 4);
    if (yours != list) return which + "first, right, full and left are " + text(yours) + ", and should be " + text(list);
    std::vector<int> entries = expected.right;
    entries.insert(entries.end(), expected.full.begin(), expected.full.end());
    entries.insert(entries.end(), expected.left.begin(), expected.left.end());
    entries.resize(most, static_cast<int>(runtime::poison_word));  // nothing is written behind the list
    const auto first = tiles.begin() + std::ptrdiff_t{most} * row;
    if (!std::equal(entries.begin(), entries.end(), first)) {
      return which + "its tiles are " + text({first, first + most}) + ", and should be " + text(entries);
    }
  }
  return "";
}

std::vector<int> downloaded(const runtime::Buffer& buffer) {
  std::vector<int> numbers(buffer.bytes() / sizeof(int));
  buffer.download(numbers.data(), buffer.bytes());
  return numbers;
}

void launch(const run::AttentionLaunch& l) {
  const PlanSizes sizes = exercise_sizes(l.shape);
  const Mask mask = device_mask(l);
  const int most = most_tiles(l.shape);
  runtime::Buffer lists("lists", sizeof(TileList) * sizes.rows), tiles("tiles", sizeof(int) * sizes.rows * most);
  lists.poison();
  tiles.poison();
  runtime::launch(exercise::build_lists,
                  {.grid = static_cast<unsigned>(ceil_div(sizes.rows, count_warps)), .block = 32 * count_warps},
                  l.device_shape(), mask, sizes, most, lists.as<TileList>(), tiles.as<int>());
  runtime::synchronize();
  const std::string wrong = difference(l.shape, sizes, downloaded(lists), downloaded(tiles));
  if (!wrong.empty()) return complain(wrong);
  runtime::launch(walk_lists,
                  {.grid = dim3(static_cast<unsigned>(sizes.rows_of_head), static_cast<unsigned>(l.shape.heads),
                                static_cast<unsigned>(l.shape.batch)),
                   .block = tile_threads,
                   .shared_bytes = sizeof(Smem)},
                  l.device_shape(), mask, Plan{tiles.as<int>(), lists.as<TileList>(), nullptr}, l.q.as<const __half>(),
                  l.k.as<const __half>(), l.v.as<const __half>(), l.o.as<__half>(), l.lse);
  runtime::synchronize();  // the lists live as long
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step =
      exercise_step("exercise_07_1", "Which tiles does a tile of queries visit?",
                    {.name = "yours",
                     .idea = "lists that you write",
                     .cost =
                         [](const Attention& a) {
                           return std::vector<problem::KernelCost>{{"build_lists"}, problem::flash_cost(a)};
                         },
                     .launch = launch});
  return &step;
}
