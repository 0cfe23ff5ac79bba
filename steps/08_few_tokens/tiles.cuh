// Step 08: what a block of the tensor-core rungs takes.
#pragma once

#include "steps/08_few_tokens/fragments.cuh"

namespace few_tokens {

// Warps that split k (`row_groups`).
template <int groups_, int warps_, int slots_>
struct RowTile {
  static constexpr int groups = groups_, rows = group * groups;  // of a block
  static constexpr int warps = warps_, threads = 32 * warps;
  static constexpr int slots = slots_;  // of a warp; an even number: a line has two
};
using FewRows = RowTile<2, 16, 2>;  // of `row_groups`; and of `tuned` where rows are few

// Warps that split rows (`ring`).
template <int groups_, int warps_, int stages_>
struct RingTile {
  static constexpr int groups = groups_, warp_rows = group * groups;
  static constexpr int warps = warps_, rows = warps * warp_rows, threads = 32 * warps;
  static constexpr int stages = stages_, k = 128;
};

template <class W, class Tile>
struct RingSmem {
  alignas(16) W ring[Tile::warps][Tile::stages][Tile::warp_rows][Tile::k];
};

}  // namespace few_tokens
