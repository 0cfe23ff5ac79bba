// Step 07: what its exercises share. An exercise is a step of its own, in fp16 with rows of 64 elements; its only variant makes
// O and LSE of tiles of 128 queries.
#pragma once

#include <iostream>

#include "common/run/family/any_step.h"
#include "steps/07_block_sparse/attend.cuh"
#include "steps/07_block_sparse/host.h"

namespace block_sparse {

using Tile = TunedTile<64>;
using Smem = SparseSmem<__half, Tile>;

inline int most_tiles(const problem::Attention& a) { return ceil_div(a.seq_k, Tile::keys); }  // of a row
inline PlanSizes exercise_sizes(const problem::Attention& a) { return query_sizes(a, Tile::rows, Tile::keys, false); }

inline run::AttentionStep exercise_step(std::string name, std::string question, run::AttentionVariant variant) {
  variant.supports = {.dtypes = {problem::Dtype::fp16},
                      .dims = {Tile::dim},
                      .window = true,
                      .sparse_q = {Tile::rows},
                      .sparse_k = {64, 128},
                      .sparse_tokens = true,
                      .row_alignment = 16};
  variant.shared_bytes = [](const problem::Attention&) { return sizeof(Smem); };
  run::AttentionStep step;
  step.name = std::move(name);
  step.question = std::move(question);
  step.default_shape = {.heads = 2, .kv_heads = 2, .seq_q = 200, .seq_k = 200, .dim = Tile::dim, .dtype = problem::Dtype::fp16};
  step.default_variant = variant.name;
  step.variants = {std::move(variant)};
  return step;
}

// Says why O stays unwritten, once: a program runs twice.
inline void complain(const std::string& why) {
  static std::string said;
  if (why != said) std::cerr << why << '\n';
  said = why;
}

}  // namespace block_sparse
