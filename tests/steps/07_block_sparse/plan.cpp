// Step 07, the plan: what its kernels make on the device, against the same counted pair by pair on the host.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "common/runtime/runtime.h"
#include "tests/catch.h"
#include "tests/steps/07_block_sparse/device_plan.h"
#include "tests/suites/attention_suite.h"

namespace {

using problem::Attention;
using problem::HeadType;
using tests::DevicePlan;
using tests::Item;
using tests::Visit;

struct Extent {
  int begin, end;
  int count() const { return end - begin; }
};
Extent of_tile(int tile, int size, int all) { return {std::min(tile * size, all), std::min((tile + 1) * size, all)}; }

int live_pairs(const Attention& a, int batch, int head, Extent queries, Extent keys) {
  int live = 0;
  for (int i = queries.begin; i < queries.end; ++i) {
    for (int j = std::max(keys.begin, a.first_key(i)); j < std::min(keys.end, a.last_key(i)); ++j) {
      live += problem::sees(*a.sparse, a, batch, head, i, j);
    }
  }
  return live;
}

enum State { dead, partial, full };

// Keys that do not exist need a mask; queries that do not exist are not stored.
State state_of(const Attention& a, int batch, int head, Extent queries, int key_tile, int tile_keys) {
  const int live = live_pairs(a, batch, head, queries, of_tile(key_tile, tile_keys, a.seq_k));
  return live == 0 ? dead : live == queries.count() * tile_keys ? full : partial;
}

// One row's list of a plan, its parts put together.
struct Listed {
  int parts = 0, right = 0, full = 0, left = 0;
  std::vector<Visit> right_visits, full_visits, left_visits;
  std::vector<int> lengths, places;  // of each part: tiles; where it leaves what it finds
};

int row_of(const DevicePlan& plan, const Item& item, int heads) {
  return (item.batch * heads + item.head) * plan.rows_of_head + item.first_of_tile / plan.tile_size;
}

std::vector<Listed> put_together(const DevicePlan& plan, int heads) {
  std::vector<Listed> rows(plan.rows);
  for (const Item& item : plan.items) {
    REQUIRE(item.first_of_tile % plan.tile_size == 0);
    Listed& row = rows[row_of(plan, item, heads)];
    const auto first_full = item.visits.begin() + item.right, first_left = first_full + item.full;
    row.right_visits.insert(row.right_visits.end(), item.visits.begin(), first_full);
    row.full_visits.insert(row.full_visits.end(), first_full, first_left);
    row.left_visits.insert(row.left_visits.end(), first_left, item.visits.end());
    row.lengths.push_back(static_cast<int>(item.visits.size()));
    row.places.push_back(item.part);
    ++row.parts;
  }
  return rows;
}

int count_of(const Listed& row) { return std::accumulate(row.lengths.begin(), row.lengths.end(), 0); }

// Every row's parts, one after the other; the rows that are split, and where their parts lie.
void check_split_rows(const DevicePlan& plan, const std::vector<Listed>& rows) {
  const int tiles =
      std::accumulate(rows.begin(), rows.end(), 0, [](int sum, const Listed& row) { return sum + count_of(row); });
  REQUIRE(tiles <= plan.most_live_tiles);  // outside the lists the simulator would have found a store
  const int longest =
      std::max({1, (plan.split_above * tiles + plan.rows - 1) / plan.rows, (tiles + plan.most_parts - 1) / plan.most_parts});
  std::vector<int> split_rows;
  int next_part = 0;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const int count = count_of(rows[n]);
    const bool is_split = plan.split_long_rows && count > longest;
    const int parts = is_split ? (count + longest - 1) / longest : 1, length = (count + parts - 1) / parts;
    INFO("row " << n << " of " << count << " tiles, longest " << longest);
    REQUIRE(rows[n].parts == parts);
    for (int part = 0; part < parts; ++part) {
      REQUIRE(rows[n].lengths[part] == std::clamp(count - part * length, 0, length));
      REQUIRE(rows[n].places[part] == (is_split ? next_part++ : -1));
    }
    if (is_split) split_rows.push_back(static_cast<int>(n));
  }
  REQUIRE(split_rows.size() <= plan.split_rows.size());
  if (plan.split_long_rows) split_rows.resize(plan.split_rows.size(), -1);
  REQUIRE(plan.split_rows == split_rows);
}

// Heavy heads first, each head's long parts first, of equal ones later rows; the last heads as one. Of very many heads, some
// neighbours are ordered as one.
void check_order(const DevicePlan& plan, const std::vector<Listed>& rows, int heads_of_entry) {
  const int heads = plan.rows / plan.rows_of_head, count = (heads + plan.heads_of_place - 1) / plan.heads_of_place;
  std::vector<int> weights(count), places(count);
  for (int row = 0; row < plan.rows; ++row) weights[row / plan.rows_of_head / plan.heads_of_place] += count_of(rows[row]);
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int x, int y) { return weights[x] > weights[y]; });
  std::vector<std::tuple<int, int, int>> order;  // group of heads, −length, −row
  for (int place = 0; place < count; ++place) {
    const int first = places[place] * plan.heads_of_place, end = std::min(first + plan.heads_of_place, heads);
    for (int row = first * plan.rows_of_head; row < end * plan.rows_of_head; ++row) {
      order.emplace_back(std::min(place, std::max(count - plan.together, 0)), -rows[row].lengths.front(), -row);
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<int> expected, found;
  for (const auto& [group, length, row] : order) expected.insert(expected.end(), rows[-row].parts, -row);
  for (const Item& item : plan.items) found.push_back(row_of(plan, item, heads_of_entry));
  REQUIRE(found == expected);
}

bool descend(const std::vector<Visit>& visits) {
  return std::is_sorted(visits.begin(), visits.end(),
                        [](const Visit& x, const Visit& y) { return std::tie(x.head, x.tile) > std::tie(y.head, y.tile); });
}

void check_query_plan(const Attention& a, int tile_queries, bool split_long_rows) {
  const DevicePlan plan = tests::query_plan(a, tile_queries, split_long_rows);
  REQUIRE(runtime::take_findings().empty());
  const std::vector<Listed> rows = put_together(plan, a.heads);
  for (int row = 0; row < plan.rows; ++row) {
    const int batch = row / plan.rows_of_head / a.heads, head = row / plan.rows_of_head % a.heads;
    const bool by_token = a.sparse->type(head) == HeadType::streaming_tokens;
    const Extent queries = of_tile(row % plan.rows_of_head, tile_queries, a.seq_q);
    const Listed& list = rows[row];
    INFO("batch " << batch << ", head " << head << ", queries from " << queries.begin);
    REQUIRE((descend(list.right_visits) && descend(list.full_visits) && descend(list.left_visits)));
    const int first_full = list.full_visits.empty() ? -1 : list.full_visits.front().tile;
    for (const Visit& visit : list.right_visits) REQUIRE(visit.tile > first_full);
    for (const Visit& visit : list.left_visits) REQUIRE(visit.tile < first_full);
    std::map<int, State> listed;
    for (const auto& [visits, is_full] :
         {std::pair{&list.right_visits, false}, {&list.full_visits, true}, {&list.left_visits, false}}) {
      for (const Visit& visit : *visits) REQUIRE(listed.emplace(visit.tile, is_full ? full : partial).second);
    }
    for (int tile = 0; tile < (a.seq_k + 63) / 64; ++tile) {
      const State expected = state_of(a, batch, head, queries, tile, 64);
      const State found = listed.contains(tile) ? listed[tile] : dead;
      INFO("keys from " << 64 * tile);
      // A tile between a sink and what is near may be taken for partial.
      if (by_token && found == partial) continue;
      REQUIRE(found == expected);
    }
    REQUIRE((listed.empty() || (listed.begin()->first >= 0 && listed.rbegin()->first < (a.seq_k + 63) / 64)));
  }
  check_split_rows(plan, rows);
  check_order(plan, rows, a.heads);
}

void check_key_plan(const Attention& a) {
  const DevicePlan plan = tests::key_plan(a);
  REQUIRE(runtime::take_findings().empty());
  const std::vector<Listed> rows = put_together(plan, a.kv_heads);
  const int group = a.heads / a.kv_heads;
  for (int row = 0; row < plan.rows; ++row) {
    const int batch = row / plan.rows_of_head / a.kv_heads, kv_head = row / plan.rows_of_head % a.kv_heads;
    const int tile = row % plan.rows_of_head;
    const Listed& list = rows[row];
    INFO("batch " << batch << ", key/value head " << kv_head << ", keys from " << 128 * tile);
    REQUIRE((descend(list.right_visits) && descend(list.full_visits) && list.left_visits.empty()));
    std::map<std::pair<int, int>, std::pair<State, int>> listed;  // state, dead halves
    for (const auto& [visits, is_full] : {std::pair{&list.right_visits, false}, {&list.full_visits, true}}) {
      for (const Visit& visit : *visits) {
        REQUIRE(
            listed.emplace(std::pair{visit.head, visit.tile}, std::pair{is_full ? full : partial, visit.dead_halves}).second);
      }
    }
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const bool by_token = a.sparse->type(head) == HeadType::streaming_tokens;
      for (int query_tile = 0; query_tile < (a.seq_q + 63) / 64; ++query_tile) {
        const Extent queries = of_tile(query_tile, 64, a.seq_q);
        const State lower = state_of(a, batch, head, queries, 2 * tile, 64);
        const State upper = state_of(a, batch, head, queries, 2 * tile + 1, 64);
        const State expected = lower == dead && upper == dead ? dead : lower == full && upper == full ? full : partial;
        const auto found = listed.find({head, query_tile});
        INFO("head " << head << ", queries from " << queries.begin);
        if (found == listed.end()) {
          REQUIRE(expected == dead);
          continue;
        }
        const auto [state, dead_halves] = found->second;
        listed.erase(found);
        // What a half is said to be must not hide a pair.
        REQUIRE(((dead_halves & 1) == 0 || lower == dead));
        REQUIRE(((dead_halves & 2) == 0 || upper == dead));
        if (by_token && state == partial) continue;
        REQUIRE(state == expected);
        REQUIRE(dead_halves == (lower == dead ? 1 : 0) + (upper == dead ? 2 : 0));
      }
    }
    REQUIRE(listed.empty());
  }
  check_split_rows(plan, rows);
  check_order(plan, rows, a.kv_heads);
}

Attention masked(Attention a, const std::string& pattern, int block_q, int block_k, std::uint64_t seed) {
  a.dim = 32;
  a.dtype = problem::Dtype::fp16;
  a = problem::resolve(a);
  a.sparse = problem::make_pattern(pattern, a, block_q, block_k, seed);
  return problem::resolve(a);
}

const char* patterns[] = {"random:0.5",
                          "band:1,dense",
                          "empty",
                          "empty,sink:1+local:1",
                          "sink:3t+local:70t,random:0.3,dense,empty",
                          "sink:130t+local:0t,sink:0t+local:1t",
                          "full-row:0.1",
                          "uneven:0.3",
                          "vertical-slash:1+1",
                          "dense"};

// Each pattern meets so many of the lengths, by turns.
void check_plans(std::size_t of_each) {
  const std::pair<int, int> lengths[] = {{1, 1},     {5, 5},   {64, 128},  {197, 197}, {300, 113},
                                         {113, 300}, {7, 700}, {257, 255}, {239, 1},   {600, 600}};
  std::size_t turn = 0;
  for (const char* pattern : patterns) {
    for (std::size_t n = 0; n < of_each; ++n) {
      const auto& [seq_q, seq_k] = lengths[(turn + turn / std::size(lengths)) % std::size(lengths)];
      const int heads[] = {4, 12, 1, 8}, shared[] = {1, 2, 1, 4}, blocks_q[] = {128, 64}, blocks_k[] = {128, 64};
      Attention a{.batch = turn % 5 == 0 ? 2 : 1,
                  .heads = heads[turn % 4],
                  .kv_heads = heads[turn % 4] / shared[turn % 4],
                  .seq_q = seq_q,
                  .seq_k = seq_k,
                  .causal = turn % 3 == 0,
                  .window = turn % 7 == 0 ? 90 : 0};
      const int block_q = blocks_q[turn / 2 % 2];
      a = masked(a, pattern, block_q, blocks_k[turn / 3 % 2], turn);
      INFO(pattern << ", " << problem::to_string(a));
      check_query_plan(a, block_q, turn % 3 != 1);
      check_key_plan(a);
      ++turn;
    }
  }
}

}  // namespace

TEST_CASE("the plan: lists, their partial and full tiles, order and split rows are what pairs, one by one, say") {
  check_plans(4);
}
TEST_CASE("… under every pattern at every length", "[.long]") { check_plans(10); }

TEST_CASE("the last query's own key is the first of a block: the block is near") {
  const Attention a = masked({.heads = 2, .kv_heads = 1, .seq_q = 129, .seq_k = 257}, "sink:0+local:1", 128, 128, 1);
  check_query_plan(a, 128, true);
  check_key_plan(a);
  check_query_plan(masked({.heads = 1, .seq_q = 128, .seq_k = 129}, "sink:0+local:1", 128, 128, 1), 128, true);
}

TEST_CASE("the plan of heads that stream from very far away") {
  for (const char* pattern : {"sink:0t+local:2147483647t", "sink:0t+local:1073741824t", "sink:0+local:1073741824"}) {
    const Attention a = masked({.heads = 1, .kv_heads = 1, .seq_q = 700, .seq_k = 900}, pattern, 128, 64, 1);
    INFO(pattern);
    check_query_plan(a, 128, true);
    check_key_plan(a);
  }
}

namespace {

// Each pattern with each number of heads, or with one by turns.
void check_uneven_plans(bool all) {
  int turn = 0;
  for (const char* pattern :
       {"dense,empty,empty,empty,empty,empty,empty,empty", "full-row:0.01", "empty,empty,empty,empty,dense"}) {
    for (const int heads : {8, 16, 24}) {  // above and below the number that is ordered together
      if (!all && turn++ % 4 != 0) continue;
      const Attention a = masked({.heads = heads, .kv_heads = heads, .seq_q = 1000, .seq_k = 1300}, pattern, 128, 64, 3);
      INFO(pattern << ", " << heads << " heads");
      check_query_plan(a, 128, true);
      check_key_plan(a);
    }
  }
}

}  // namespace

TEST_CASE("the plan of rows far from equal: what is split, and in how many parts") { check_uneven_plans(false); }
TEST_CASE("… each pattern with each number of heads", "[.long]") { check_uneven_plans(true); }

TEST_CASE("the plan of so many rows that few are split, however short the others are") {
  const Attention a = masked({.heads = 9000, .kv_heads = 9000, .seq_q = 1, .seq_k = 700},
                             "empty,empty,empty,empty,empty,empty,empty,empty,empty,dense", 128, 64, 3);
  const DevicePlan plan = tests::query_plan(a, 128, true);
  CHECK(plan.split_rows.size() == static_cast<std::size_t>(plan.most_parts));
  CHECK(plan.split_rows.front() >= 0);
  check_query_plan(a, 128, true);
  check_key_plan(a);
}

TEST_CASE("lists have room for the tiles that may be live, not for all") {
  const auto room = [](const char* pattern, int seq, bool known) {
    Attention a = masked({.heads = 4, .kv_heads = 2, .seq_q = seq, .seq_k = seq, .causal = true}, pattern, 128, 64, 3);
    if (!known) {
      auto mask = std::make_shared<problem::SparseMask>(*a.sparse);
      std::fill(mask->live.begin(), mask->live.end(), ~0);
      a.sparse = mask;
    }
    double bytes = 0;
    for (const run::Array& array :
         run::variant_named(*std::get<const run::AttentionStep*>(run::this_step()), "balanced").scratch_of(a)) {
      if (array.name == "tiles") bytes = static_cast<double>(run::bytes(array));
    }
    return bytes;
  };
  const double rows = 4 * 512, all = 4 * rows * 1024 / 2;  // 65,536 tokens; bytes of half of all tiles
  CHECK(std::abs(room("dense", 65536, true) / all - 1) < 0.01);
  CHECK(room("random:0.1", 65536, true) < 0.3 * all);
  CHECK(std::abs(room("random:0.1", 65536, false) / all - 1) < 0.01);
  CHECK(room("band:2", 65536, true) < 12 * 4 * rows);
  CHECK(room("sink:1+local:2", 65536, true) < 12 * 4 * rows);
  CHECK(room("sink:64t+local:128t", 65536, true) < 12 * 4 * rows);
}

TEST_CASE("the plan of so many heads that neighbours have one place") {
  for (const char* pattern : {"dense", "random:0.5,dense,empty", "empty,empty,empty,empty,empty,empty,full-row:0.01"}) {
    const Attention a =
        masked({.batch = 25, .heads = 44, .kv_heads = 44, .seq_q = 300, .seq_k = 200, .causal = true}, pattern, 128, 64, 3);
    INFO(pattern);
    check_query_plan(a, 128, true);
    check_key_plan(a);
  }
}

TEST_CASE("the plan of packed sequences, and of a mask for each batch entry") {
  Attention packed{.heads = 4, .kv_heads = 2, .causal = true};
  packed.cu_seqlens = {0, 17, 17, 114, 300, 333};
  packed.seq_q = packed.seq_k = 333;
  for (const char* pattern : {"random:0.5,dense", "sink:5t+local:30t,band:1"}) {
    for (const bool causal : {false, true}) {
      packed.causal = causal;
      INFO(pattern);
      const Attention a = masked(packed, pattern, 64, 64, 5);
      check_query_plan(a, 64, true);
      check_key_plan(a);
    }
  }
  // Between two sequences a tile of queries may list all tiles of the first one.
  Attention long_ones{.heads = 1, .kv_heads = 1, .causal = false};
  long_ones.cu_seqlens = {0, 1023, 2047, 3071, 4095};
  long_ones.seq_q = long_ones.seq_k = 4095;
  check_query_plan(masked(long_ones, "sink:2t+local:2t", 128, 64, 1), 128, true);
  check_key_plan(masked(long_ones, "sink:2t+local:2t", 128, 64, 1));
  Attention two = masked({.batch = 2, .heads = 2, .kv_heads = 1, .seq_q = 300, .seq_k = 420}, "random:0.4", 128, 128, 1);
  auto mask = std::make_shared<problem::SparseMask>(*two.sparse);
  const auto other = problem::make_pattern("random:0.7", two, 128, 128, 2);
  mask->live.insert(mask->live.end(), other->live.begin(), other->live.end());
  mask->batches = 2;
  two.sparse = mask;
  two = problem::resolve(two);
  check_query_plan(two, 128, true);
  check_key_plan(two);
}
