// Which rows are compared where comparing all of them would take minutes.
#pragma once

#include <cstdint>
#include <random>
#include <set>

namespace reference {

inline constexpr int least_sample = 64;  // rows; of fewer, all are compared

// Draws samples of the rows 0 … rows − 1, of which there are more than `wanted` (at least least_sample). Always in it: the
// first two and the last two rows, the neighbourhood of `always`, and, for tiles of 16, 32, 64 and 128 rows, the rows around
// the first and the last edge of a tile. Half of the others lie around random tile edges, half anywhere. Equal seeds give equal
// samples on every machine.
class Sampler {
 public:
  Sampler(int rows, int wanted, std::uint64_t seed, int always = 0);
  std::set<int> next();

 private:
  void add_neighbourhood(int row);
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }

  int rows_;
  std::size_t wanted_;
  std::mt19937_64 random_;  // its numbers, unlike the standard distributions, are the same everywhere
  std::set<int> fixed_;     // in every sample: at most 31
};

}  // namespace reference
