// The roof of mma.sync as a contender: the kernel of benchmarks/ceilings that only multiplies, with random operands and no more
// operations than asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmarks/ceilings/arithmetic.cuh"
#include "common/problem/dtype.h"
#include "common/runtime/launch.h"

namespace benchmarks {

class MmaRoof {
 public:
  MmaRoof(problem::Dtype dtype, double operations)  // fp16 or bf16
      : dtype_(dtype),
        blocks_(runtime::properties().multiprocessors),
        rounds_(std::max(1, static_cast<int>(operations / operations_of(1)))),
        pairs_("pairs", std::size_t{4096} * 32 * sizeof(std::uint32_t)),
        sums_("sums", static_cast<std::size_t>(blocks_) * threads * sizeof(float)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(pairs_.bytes() / problem::bytes(dtype));
    for (float& value : values) value = normal(random);
    std::vector<std::uint16_t> halves(values.size());
    problem::encode(dtype, values.data(), values.size(), halves.data());
    pairs_.upload(halves.data(), pairs_.bytes());
  }

  double operations() const { return operations_of(rounds_); }

  void launch() const {
    const auto kernel = dtype_ == problem::Dtype::fp16 ? ceilings::mma_chain<__half> : ceilings::mma_chain<__nv_bfloat16>;
    runtime::launch(kernel, {.grid = blocks_, .block = threads}, rounds_, pairs_.as<const std::uint32_t>(), sums_.as<float>());
  }

 private:
  static constexpr int threads = 256;

  double operations_of(int rounds) const {
    return ceilings::mma_flops * blocks_ * (threads / 32) * rounds * ceilings::mma_unroll * ceilings::mma_a * ceilings::mma_b;
  }

  problem::Dtype dtype_;
  int blocks_, rounds_;
  runtime::Buffer pairs_, sums_;
};

}  // namespace benchmarks
