// Step 03: what its exercises share. An exercise is a step of its own, in fp32, with one variant of one kernel: a block per
// row.
#pragma once

#include "common/run/family/any_step.h"
#include "steps/03_online_softmax/host.h"

namespace online_softmax {

inline run::SoftmaxStep exercise_step(std::string name, std::string question, std::string variant_name, std::string idea,
                                      void (*kernel)(Shape, Rows<const float>, Rows<float>), int threads,
                                      std::size_t shared_bytes) {
  run::SoftmaxVariant variant;
  variant.name = std::move(variant_name);
  variant.idea = std::move(idea);
  variant.supports.dtypes = {problem::Dtype::fp32};
  variant.shared_bytes = [=](const Softmax&) { return shared_bytes; };
  variant.cost = [](const Softmax& s) { return std::vector{problem::row_softmax_cost(s, "softmax", 2)}; };
  variant.launch = [=](const run::SoftmaxLaunch& l) { launch_rows<float>(l, kernel, 1, threads, shared_bytes); };
  run::SoftmaxStep step;
  step.name = std::move(name);
  step.question = std::move(question);
  step.default_shape.rows = 16;
  step.default_shape.cols = 1000;
  step.default_variant = variant.name;
  step.variants = {std::move(variant)};
  return step;
}

}  // namespace online_softmax
