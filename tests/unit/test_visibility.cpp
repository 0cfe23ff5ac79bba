// common/device/visibility.h against the definitions, pair by pair, over all small shapes and masks.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "common/device/visibility.h"
#include "tests/catch.h"

namespace {

struct Shape {
  int seq_q, seq_k;
  bool causal;
  int window;
};
struct Range {
  int first, end;
  bool has(int n) const { return first <= n && n < end; }
};

std::string to_string(const Shape& s) {
  return std::to_string(s.seq_q) + " × " + std::to_string(s.seq_k) + (s.causal ? ", causal" : "") + ", window " +
         std::to_string(s.window);
}

// The definition.
bool sees(const Shape& s, int i, int j) {
  const int distance = i + s.seq_k - s.seq_q - j;
  return (!s.causal || distance >= 0) && (s.window == 0 || std::abs(distance) < s.window);
}

template <class Visit>
void for_each_mask(int seq_q, int seq_k, const Visit& visit) {
  for (const bool causal : {false, true}) {
    for (const int window : {0, 1, 2, 3, 5, 9, INT_MAX}) visit(Shape{seq_q, seq_k, causal, window});
  }
}
template <class Visit>
void for_each_shape(const Visit& visit) {
  for (int seq_q = 1; seq_q <= 7; ++seq_q) {
    for (int seq_k = 1; seq_k <= 7; ++seq_k) for_each_mask(seq_q, seq_k, visit);
  }
}

Range keys_of(const Shape& s, int i) { return {visibility::first_key(s, i), visibility::end_key(s, i)}; }
Range queries_of(const Shape& s, int j) { return {visibility::first_query(s, j), visibility::end_query(s, j)}; }

bool ascend(const Range& a, const Range& b) { return a.first <= b.first && a.end <= b.end; }
bool is_inside(const Range& a, int count) { return 0 <= a.first && a.first <= a.end && a.end <= count; }

}  // namespace

TEST_CASE("a query's keys and a key's queries are those of the definition, and their ends grow") {
  for_each_shape([](const Shape& s) {
    INFO(to_string(s));
    bool right = true, in_order = true;
    for (int i = 0; i < s.seq_q; ++i) {
      const Range keys = keys_of(s, i);
      in_order &= is_inside(keys, s.seq_k) && ascend(keys, keys_of(s, i + 1));  // also of the row behind the last query
      if (s.window == 0) right &= visibility::visible_keys(s, i) == keys.end;
      for (int j = 0; j < s.seq_k; ++j) {
        const int distance = visibility::own_key(s, i) - j;
        const bool near = distance >= visibility::least_distance(s) && distance <= visibility::most_distance(s);
        right &= keys.has(j) == sees(s, i, j) && queries_of(s, j).has(i) == sees(s, i, j) && near == sees(s, i, j);
      }
    }
    for (int j = 0; j < s.seq_k; ++j) in_order &= ascend(queries_of(s, j), queries_of(s, j + 1));
    CHECK(right);
    CHECK(in_order);
  });
}

TEST_CASE("the largest lengths and windows overflow nothing") {
  for (const int seq_q : {1, INT_MAX}) {
    for (const int seq_k : {1, INT_MAX}) {
      for_each_mask(seq_q, seq_k, [](const Shape& s) {
        INFO(to_string(s));
        for (const int i : {0, s.seq_q - 1}) {
          for (const int j : {0, s.seq_k - 1}) {
            const std::int64_t distance = std::int64_t{i} + s.seq_k - s.seq_q - j;
            const bool seen = (!s.causal || distance >= 0) && (s.window == 0 || std::abs(distance) < s.window);
            CHECK(keys_of(s, i).has(j) == seen);
            CHECK(queries_of(s, j).has(i) == seen);
          }
        }
      });
    }
  }
}

namespace {

// visit(sequences): the sequence of each of so many tokens, for all ways to cut them.
template <class Visit>
void for_each_cut(int tokens, const Visit& visit) {
  for (int cuts = 0; cuts < 1 << (tokens - 1); ++cuts) {  // bit n: a sequence ends behind token n
    const auto begins = [&](int token) { return token == 0 || cuts >> (token - 1) & 1; };
    std::vector<Range> own(tokens);
    for (int i = 0; i < tokens; ++i) {
      own[i] = {i, i + 1};
      while (!begins(own[i].first)) --own[i].first;
      while (own[i].end < tokens && !begins(own[i].end)) ++own[i].end;
    }
    INFO("cuts " << cuts);
    visit(own);
  }
}
Range cut(const Range& a, const Range& b) { return {visibility::larger(a.first, b.first), visibility::smaller(a.end, b.end)}; }

// A head that streams by token, of tokens that lie in these sequences: those of queries, and of keys.
void check_streaming(const Shape& s, int sink, int local, const std::vector<Range>& of_query,
                     const std::vector<Range>& of_key) {
  INFO(to_string(s) << ", sink " << sink << ", local " << local);
  const visibility::Tokens tokens = visibility::tokens_of(sink, local);
  const auto ranges = [&](int i) {
    const Range keys = cut(keys_of(s, i), of_query[i]);
    const int own = visibility::own_key(s, i);
    const visibility::SeenKeys seen = visibility::streaming_keys(tokens, keys.first, keys.end, own, of_query[i].first);
    return std::pair{Range{seen.first, seen.end}, Range{seen.sink_first, seen.sink_end}};
  };
  bool right = true, in_order = true;
  for (int i = 0; i < s.seq_q; ++i) {
    const auto [near, of_sink] = ranges(i);
    if (i > 0) in_order &= ascend(ranges(i - 1).first, near) && ascend(ranges(i - 1).second, of_sink);
    for (int j = 0; j < s.seq_k; ++j) {
      const int first = of_query[i].first, own = i + s.seq_k - s.seq_q;
      const bool seen = of_query[i].has(j) && sees(s, i, j) && (j - first < sink || std::abs(own - j) < local);
      const Range queries = cut(queries_of(s, j), of_key[j]);
      const visibility::SeeingQueries seeing =
          visibility::streaming_queries(tokens, queries.first, queries.end, visibility::own_query(s, j),
                                        j - of_query[visibility::smaller(j, s.seq_q - 1)].first);
      right &= (near.has(j) || of_sink.has(j)) == seen && (seeing.first <= i && i < seeing.end) == seen;
    }
  }
  CHECK(right);
  CHECK(in_order);
}

}  // namespace

TEST_CASE("packed tokens see each other within their sequence alone: all ways to cut seven tokens") {
  constexpr int tokens = 7;
  for_each_cut(tokens, [](const std::vector<Range>& own) {
    for_each_mask(tokens, tokens, [&](const Shape& s) {
      INFO(to_string(s));
      bool right = true;
      for (int i = 0; i < tokens; ++i) {
        for (int j = 0; j < tokens; ++j) {
          const bool seen = own[i].has(j) && sees(s, i, j);
          right &= cut(keys_of(s, i), own[i]).has(j) == seen && cut(queries_of(s, j), own[j]).has(i) == seen;
        }
      }
      CHECK(right);
    });
  });
}

TEST_CASE("heads that stream by token see a sink and what is near, and both ends of both grow") {
  for (const int sink : {0, 1, 3, INT_MAX}) {
    for (const int local : {0, 1, 2, 4, INT_MAX}) {
      for_each_shape([&](const Shape& s) {
        check_streaming(s, sink, local, std::vector(s.seq_q, Range{0, s.seq_k}), std::vector(s.seq_k, Range{0, s.seq_q}));
      });
      for_each_cut(5, [&](const std::vector<Range>& own) {
        for_each_mask(5, 5, [&](const Shape& s) { check_streaming(s, sink, local, own, own); });
      });
    }
  }
}

TEST_CASE("a block of keys is as far away as from the nearest own block of a query of the block") {
  for_each_shape([](const Shape& s) {
    if (s.causal || s.window > 0) return;
    for (int queries = 1; queries <= 4; ++queries) {
      for (int keys = 1; keys <= 4; ++keys) {
        const auto block_of = [&](int key) { return static_cast<int>(std::floor(1.0 * key / keys)); };
        for (int first = 0; first < s.seq_q; first += queries) {
          const visibility::OwnKeys own = visibility::own_keys(s, first, queries);
          CHECK(own.last - own.first == std::min(queries, s.seq_q - first) - 1);
          for (int block = 0; block * keys < s.seq_k; ++block) {
            int nearest = INT_MAX;
            for (int i = first; i < std::min(first + queries, s.seq_q); ++i) {
              nearest = std::min(nearest, std::abs(block_of(i + s.seq_k - s.seq_q) - block));
            }
            INFO(to_string(s) << ", " << queries << " queries from " << first << ", block " << block << " of " << keys
                              << " keys");
            CHECK(visibility::block_distance(block_of(own.first), block_of(own.last), block) == nearest);
          }
        }
      }
    }
  });
}
