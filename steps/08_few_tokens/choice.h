// Step 08, host side: which tile of `row_groups` the default variant takes for a problem.
//
// A table of what was fastest on an H100, in fp16, over the shapes of benchmarks/few_tokens_peers.cu. Rows and k decide; with
// 1, 8 and 16 tokens the same tile wins, or comes within 5 % of the winner:
//
//   few_rows     a block an SM or less: 16 warps split k, so that each SM still has 64 KB in flight
//   many_rows    64 rows an SM or more: two blocks an SM, each with 32 KB in flight
//   short_rows   few k: all weights of a block are requested at once, with a dependent launch before the launch before has
//                ended. Only then it is the fastest
//   alone        few rows, and no launch before to overlap with: small blocks, two an SM, end at different times
#pragma once

#include "common/run/family/linear.h"

namespace few_tokens {

enum class Tile { few_rows, many_rows, short_rows, alone };

inline Tile choose(const problem::Linear& g, bool dependent, int multiprocessors) {
  constexpr int short_k = 1024;  // 16 lines
  const std::int64_t rows = g.entries() * g.n, rows_of_sm = rows / multiprocessors;
  if (rows_of_sm >= 64) return Tile::many_rows;
  if (g.k <= short_k && rows_of_sm >= 16) return dependent ? Tile::short_rows : Tile::many_rows;
  return dependent ? Tile::few_rows : Tile::alone;
}

}  // namespace few_tokens
