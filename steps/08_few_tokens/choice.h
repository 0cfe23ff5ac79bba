// Step 08, host side: which tile of `row_groups` the default variant takes for a problem.
//
// A table of what was fastest on an H100, over the shapes of benchmarks/few_tokens_peers.cu; the number of tokens and their
// type do not change who wins. Rows and k decide:
//
//   few_rows     a block an SM or less: 16 warps split k, so that each SM still has 64 KB in flight
//   many_rows    more rows than blocks of 64 for all SMs: two blocks an SM, each with 16 KB · 2 in flight, that come and go
//   short_rows   k of one line for each of eight warps, or two: all of a block's weights are requested at once, and with a
//   dependent
//                launch before the launch before has ended. Only then it is the fastest
//   alone        few rows, and no launch before to overlap with: small blocks, two an SM, end at different times
#pragma once

#include "common/run/family/linear.h"

namespace few_tokens {

enum class Tile { few_rows, many_rows, short_rows, alone };
inline const char* name(Tile tile) {
  switch (tile) {
    case Tile::few_rows:
      return "2 groups, 16 warps, 2 slots";
    case Tile::many_rows:
      return "2 groups, 8 warps, 2 slots";
    case Tile::short_rows:
      return "4 groups, 8 warps, 4 slots";
    case Tile::alone:
      break;
  }
  return "1 group, 8 warps, 4 slots";
}

inline Tile choose(const problem::Linear& g, bool dependent, int multiprocessors) {
  constexpr int short_k = 1024;  // 16 lines
  const std::int64_t rows = g.entries() * g.n, rows_of_sm = rows / multiprocessors;
  if (rows_of_sm >= 64) return Tile::many_rows;
  if (g.k <= short_k && rows_of_sm >= 16) return dependent ? Tile::short_rows : Tile::many_rows;
  return dependent ? Tile::few_rows : Tile::alone;
}

}  // namespace few_tokens
