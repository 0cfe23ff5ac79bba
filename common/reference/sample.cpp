#include "common/reference/sample.h"

#include <algorithm>

namespace reference {
namespace {

constexpr int tile_sizes[] = {16, 32, 64, 128};

}  // namespace

Sampler::Sampler(int rows, int wanted, std::uint64_t seed, int always)
    : rows_(rows), wanted_(std::max(wanted, least_sample)), random_(seed) {
  add_neighbourhood(0);
  add_neighbourhood(rows - 1);
  add_neighbourhood(always);
  for (const int tile : tile_sizes) {
    add_neighbourhood(tile);
    add_neighbourhood(rows / tile * tile);
  }
}

std::set<int> Sampler::next() {
  std::set<int> chosen = fixed_;
  for (std::size_t edges = (wanted_ - chosen.size()) / 2; edges > 0; --edges) {
    const int edge = below(rows_ / tile_sizes[0] + 1) * tile_sizes[0];
    chosen.insert(std::clamp(edge + below(3) - 1, 0, rows_ - 1));
  }
  while (chosen.size() < wanted_) chosen.insert(below(rows_));
  return chosen;
}

// The row itself and those beside it, as far as they exist.
void Sampler::add_neighbourhood(int row) {
  for (int r = row - 1; r <= row + 1; ++r) {
    if (r >= 0 && r < rows_) fixed_.insert(r);
  }
}

}  // namespace reference
