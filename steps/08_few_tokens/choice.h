// Step 08, host side: which tile of `row_groups` the default variant takes for a problem.
//
// A table made by hand from what was fastest on an H100 and an H200, at five sizes with 1 to 16 tokens, in fp16, in bf16 and
// with tokens of fp32 (benchmarks/few_tokens_sweep.py). Rows and k decide, and more than 8 tokens of fp32, whose fragments fill
// the registers that other tiles have for weights:
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
  const std::int64_t rows = g.entries() * g.n, rows_of_sm = rows / multiprocessors;
  const bool short_k = g.k <= 1024;  // 16 lines
  const bool wide_tokens = g.dtype_a == problem::Dtype::fp32 && g.m > 8;
  if (rows_of_sm >= 64) return Tile::many_rows;
  if (short_k && rows_of_sm >= 16) return dependent && !wide_tokens ? Tile::short_rows : Tile::many_rows;
  return dependent || (wide_tokens && !short_k) ? Tile::few_rows : Tile::alone;
}
// [/doc: choose]

// A launch with this tile, whatever the choice (dependent.sm_90.cu): the benchmark measures all.
void launch_tile(const run::LinearLaunch& l, Tile tile, bool dependent);

}  // namespace few_tokens
