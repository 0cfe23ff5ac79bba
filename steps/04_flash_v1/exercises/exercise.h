// Step 04: what its exercises share. An exercise is a step of its own with one variant, the reader's.
#pragma once

#include "../host.h"
#include "common/run/family/any_step.h"

namespace flash_v1 {

// Small blocks, so that small problems have several: Br = Bc = 32, d up to 64.
struct SmallBlocks {
  static constexpr int dim = 64;
  static constexpr int rows = 32;
  static constexpr int keys = 32;
};
using SmallSmem = ScalarSmem<SmallBlocks>;

using SmallKernel = void (*)(AttentionShape, Heads<const float>, Heads<const float>, Heads<const float>, RowState);

// A step whose one variant runs Algorithm 1 by this kernel, in fp32.
inline run::AttentionStep exercise_step(std::string name, std::string question, run::AttentionVariant variant,
                                        SmallKernel kernel) {
  variant.supports.max_dim = SmallBlocks::dim;
  variant.shared_bytes = [](const Attention&) { return sizeof(SmallSmem); };
  variant.scratch = state_arrays;
  variant.cost = [](const Attention& a) { return cost_of(a, {SmallBlocks::rows, SmallBlocks::keys}, "algorithm_1"); };
  variant.launch = [=](const AttentionLaunch& l) {
    launch_initialise(l);
    launch_keys<float>(l, kernel, scalar_threads, sizeof(SmallSmem));
    launch_finish<float>(l);
  };
  run::AttentionStep step;
  step.name = std::move(name);
  step.question = std::move(question);
  step.default_shape.heads = step.default_shape.kv_heads = 2;
  step.default_shape.seq_q = step.default_shape.seq_k = 96;
  step.default_shape.dim = 32;
  step.default_variant = variant.name;
  step.variants = {std::move(variant)};
  return step;
}

}  // namespace flash_v1
