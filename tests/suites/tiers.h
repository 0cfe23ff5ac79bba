// Two tiers. `make test` runs what proves every promise once; `make test-all` adds the test cases tagged [.long]: the rest of
// the shape lists, more seeds.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/runtime/runtime.h"

namespace suite {

// Two lists of the same shapes in two types, in turns: the first case of one, the second of the other, and so on. Turn 0 begins
// with the first list, turn 1 with the second; together they are both lists.
template <class Case>
std::vector<Case> in_turns(std::vector<Case> first, const std::vector<Case>& second, int turn) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    if ((i + static_cast<std::size_t>(turn)) % 2 == 1) first[i] = second[i];
  }
  return first;
}

// Seeds of schedules: make test takes the first ones, make test-all others.
struct Seeds {
  std::uint64_t first, last;
};
constexpr Seeds one_seed{1, 1}, two_seeds{1, 2}, three_more_seeds{3, 5};

// Calls body(seed) under schedules of the simulator: of each seed one in every completion mode, on all cores, one and two.
template <class Body>
void under_schedules(Seeds seeds, const Body& body) {
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    for (const auto mode : {runtime::AsyncMode::late, runtime::AsyncMode::eager, runtime::AsyncMode::random}) {
      runtime::configure({seed, mode, static_cast<int>((seed + static_cast<std::uint64_t>(mode)) % 3)});
      body(seed);
    }
  }
  runtime::configure({});
}

}  // namespace suite
