// Step 08, host side: which tile of `row_groups` the default variant takes for a problem.
//
// A table made by hand from what was fastest on an H100, in fp16, at the five shapes of benchmarks/few_tokens_peers.cu with 1,
// 8 and 16 tokens. Other shapes, bf16 and tokens of fp32 were not measured, so there the choice may be far from the best. Rows
// and k decide; the type and the number of tokens do not:
//
//   many_rows    64 rows an SM or more, and few k without a dependent launch: two blocks an SM, each with 32 KB in flight
//   short_rows   few k, with a dependent launch: all weights of a block are requested before the launch before has ended
//   few_rows     else, with a dependent launch: 16 warps split k, so that one block keeps 64 KB in flight on its SM
//   alone        else, with no launch before to overlap with: small blocks, two an SM, which end at different times
#pragma once

#include <utility>

#include "common/run/family/linear.h"

namespace few_tokens {

enum class Tile { few_rows, many_rows, short_rows, alone };
inline constexpr std::pair<Tile, const char*> tiles[] = {
    {Tile::few_rows, "few_rows"}, {Tile::many_rows, "many_rows"}, {Tile::short_rows, "short_rows"}, {Tile::alone, "alone"}};

// [doc: choose]
inline Tile choose(const problem::Linear& g, bool dependent, int multiprocessors) {
  constexpr int short_k = 1024;  // 16 lines
  const std::int64_t rows = g.entries() * g.n, rows_of_sm = rows / multiprocessors;
  if (rows_of_sm >= 64) return Tile::many_rows;
  if (g.k <= short_k && rows_of_sm >= 16) return dependent ? Tile::short_rows : Tile::many_rows;
  return dependent ? Tile::few_rows : Tile::alone;
}
// [/doc: choose]

// A launch with this tile, whatever the choice (dependent.sm_90.cu): the benchmark measures all.
void launch_tile(const run::LinearLaunch& l, Tile tile, bool dependent);

}  // namespace few_tokens
