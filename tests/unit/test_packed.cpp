// Packed sequences: which keys a token sees, and what is refused. The kernel that finds the sequences runs in every test of a
// step that takes them.
#include <cstdint>
#include <random>
#include <string>

#include "common/device/shapes.h"
#include "common/problem/attention.h"
#include "common/reference/backward.h"
#include "tests/catch.h"

namespace {

problem::Attention packed(std::vector<std::int32_t> cu_seqlens, bool causal = false, int window = 0) {
  problem::Attention shape{.seq_q = cu_seqlens.back(), .seq_k = cu_seqlens.back(), .causal = causal, .window = window};
  shape.cu_seqlens = std::move(cu_seqlens);
  return shape;
}

void is_refused(const problem::Attention& shape, const std::string& saying) {
  INFO(saying);
  try {
    problem::resolve(shape);
    FAIL("not refused");
  } catch (const std::invalid_argument& error) {
    INFO(error.what());
    CHECK(std::string(error.what()).find(saying) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("problem, reference and kernels agree on which pairs of packed tokens are seen: by the definition") {
  std::mt19937 random(1);
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<std::int32_t> sums{0};
    std::vector<int> of_token;  // its sequence
    for (int s = 0; s < 1 + turn % 7; ++s) {
      const int length = s == 0 && turn % 3 > 0 ? 1 + turn : static_cast<int>(random() % 4) * static_cast<int>(random() % 9);
      of_token.insert(of_token.end(), static_cast<std::size_t>(length), s);
      sums.push_back(sums.back() + length);
    }
    if (of_token.empty()) continue;
    const int window = turn % 4 < 2 ? 0 : 1 + static_cast<int>(random() % 12);
    const problem::Attention shape = problem::resolve(packed(sums, turn % 2 == 1, window));
    const int tokens = shape.seq_q;
    std::vector<int> first(of_token.size()), end(of_token.size());
    for (int i = 0; i < tokens; ++i) first[i] = sums[of_token[i]], end[i] = sums[of_token[i] + 1];
    device::PackedShape kernels{};
    static_cast<device::AttentionShape&>(kernels) = {1, 1, 1, tokens, tokens, shape.dim, shape.causal, 1.0f, window};
    kernels.first_token = first.data();
    kernels.end_token = end.data();
    const reference::AttentionSpec spec{
        .seq_q = tokens, .seq_k = tokens, .causal = shape.causal, .window = window, .cu_seqlens = sums};
    std::int64_t pairs = 0;
    for (int i = 0; i < tokens; ++i) {
      const reference::KeyRange keys = reference::visible_keys(spec, i);
      const reference::QueryRange queries = reference::queries_seeing(spec, i);
      for (int j = 0; j < tokens; ++j) {
        const auto sees = [&](int query, int key) {
          return of_token[query] == of_token[key] && (!shape.causal || key <= query) &&
                 (window == 0 || std::abs(query - key) < window);
        };
        INFO(problem::to_string(shape) << ", window " << window << ", " << i << " and " << j);
        REQUIRE((j >= shape.first_key(i) && j < shape.last_key(i)) == sees(i, j));
        REQUIRE((j >= keys.begin && j < keys.end) == sees(i, j));
        REQUIRE((j >= queries.begin && j < queries.end) == sees(j, i));
        REQUIRE((j >= kernels.first_key(i) && j < kernels.end_key(i)) == sees(i, j));
        REQUIRE((j >= kernels.first_query(i) && j < kernels.end_query(i)) == sees(j, i));
        pairs += sees(i, j);
      }
      if (i > 0) {  // both ends grow with the token, as the walk over tiles needs
        REQUIRE((kernels.first_key(i) >= kernels.first_key(i - 1) && kernels.end_key(i) >= kernels.end_key(i - 1)));
        REQUIRE((kernels.first_query(i) >= kernels.first_query(i - 1) && kernels.end_query(i) >= kernels.end_query(i - 1)));
      }
    }
    CHECK(kernels.end_key(tokens + 5) == kernels.end_key(tokens - 1));  // beyond the last: as the last
    CHECK(shape.dense_pairs() == pairs);
  }
}

TEST_CASE("sums of lengths that cannot be are refused by name") {
  is_refused(packed({3}), "cu-seqlens begins with 3 and must begin with 0");
  is_refused(packed({0}), "no sequence");
  is_refused(packed({0, 0}), "there is no token");
  is_refused(packed({1, 4}), "must begin with 0");
  is_refused(packed({0, 5, 4, 9}), "cu-seqlens falls from 5 to 4");
  is_refused(packed({0, -1, 9}), "cu-seqlens falls from 0 to -1");
  problem::Attention shape = packed({0, 4, 9});
  shape.batch = 2;
  is_refused(shape, "packed sequences (cu-seqlens) lie in one batch entry");
  shape = packed({0, 4, 9});
  shape.seq_k = 10;
  is_refused(shape, "seq-k is 10; with packed sequences both are the last of cu-seqlens, 9");
  CHECK(problem::to_string(problem::resolve(packed({0, 4, 4, 9}))) == "batch 1, heads 1 over 1, 9 × 9, dim 64, 3 packed, fp32");
}
