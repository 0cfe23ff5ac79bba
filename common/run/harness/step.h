// What a step offers. step.cu fills in one of these; the executable, the tests, the tour, the benchmarks and the tables of the
// book are all made from it. A family of problems (attention, matrix products, row softmaxes) is a struct of types and
// functions:
//
//     struct GemmFamily {
//       using Problem = …;  using Inputs = …;  using Support = …;  using Launch = …;  using Truth = …;
//       static Arrays arrays(const Problem& shape, Layout layout);               // inputs and outputs
//       static std::vector<Given> given(const Problem& shape, const Inputs& inputs);  // their values
//       static Launch bind(const Problem& shape, const DeviceArrays& arrays);         // what a variant's launch takes
//       static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
//     };
//     std::string to_string(const Support& supports);
//     std::optional<std::string> refusal(const Support& supports, const Problem& shape);
//     int step_main(int argc, char** argv, const Step<GemmFamily>& step);  // returns an ExitStatus (cli/options.h)
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/problem/cost.h"
#include "common/run/harness/arrays.h"
#include "common/run/harness/counters.h"

namespace run {

// How the arrays of a test lie in memory. A kernel reads strides and must not care; with gaps, a read beyond a row or beyond
// the last key of a head meets a NaN instead of its neighbour's values, and a write there is seen.
struct Layout {
  bool tokens_first = false;  // [batch, rows, heads, dim] instead of [batch, heads, rows, dim]
  bool gaps = false;          // unused elements after each row, each head and each batch entry
  bool odd = false;           // so many of them that most rows begin at odd elements
};

// The devices that a kernel's code is for: 90 is 9.0 and all that is newer, by PTX; only(90) is 9.0 and nothing else, since it
// has instructions that no other device has. cmake/architectures.cmake compiles a file accordingly, by its name.
struct ComputeCapability {
  int number;
  bool only = false;

  constexpr ComputeCapability(int number_, bool only_ = false) : number(number_), only(only_) {}
};
constexpr ComputeCapability only(int compute_capability) { return {compute_capability, true}; }

// What most variants need: no shared memory, no scratch memory, no excuse for a count.
inline constexpr int least_compute_capability = 80;  // 8.0: what the gpu build compiles for

template <class Family>
struct Variant {
  using Problem = typename Family::Problem;

  std::string name;
  std::string idea;                        // in one line
  typename Family::Support supports = {};  // a request beyond it is refused by name, never served wrongly
  ComputeCapability compute_capability = least_compute_capability;       // that its kernels need; the simulator runs them all
  std::function<std::size_t(const Problem&)> shared_bytes = {};          // at most, a block; none: 0
  std::function<Arrays(const Problem&)> scratch = {};                    // none: no arrays
  std::function<std::vector<problem::KernelCost>(const Problem&)> cost;  // one entry per kernel, in launch order
  // What a launch needs of the mask alone: made before the first launch, and kept for all others. None: nothing.
  std::function<void(const typename Family::Launch&)> plan = {};
  std::function<void(const typename Family::Launch&)> launch;
  bool deterministic = true;       // two runs give the same bits
  std::string demonstration = {};  // why "all" leaves it out: it is there to be rejected. Empty for all others

  std::size_t shared_bytes_of(const Problem& shape) const { return shared_bytes ? shared_bytes(shape) : 0; }
  Arrays scratch_of(const Problem& shape) const { return scratch ? scratch(shape) : Arrays{}; }
};

template <class Family_>
struct Step {
  using Family = Family_;
  using Problem = typename Family::Problem;

  std::string name;      // "01_naive_mha"
  std::string question;  // that the step answers, in one line
  Problem default_shape;
  std::string default_variant;  // the best one
  std::vector<Variant<Family>> variants;
  std::vector<std::string> next_best = {};  // where that does not run on the device or take the problem: in this order
  // The default for a problem, where the step has kinds of problems with variants of their own; none: default_variant.
  std::function<std::string(const Problem&)> default_for = {};
  // Where nvcc's code accesses memory otherwise than the source says; none: nowhere.
  std::function<std::vector<Estimate>(const Problem&)> estimates = {};

  std::vector<Estimate> estimates_of(const Problem& shape) const {
    return estimates ? estimates(shape) : std::vector<Estimate>{};
  }
};

// A variant of a step by its name. Throws std::out_of_range.
template <class OneStep>
const auto& variant_named(const OneStep& step, const std::string& name) {
  for (const auto& variant : step.variants) {
    if (variant.name == name) return variant;
  }
  throw std::out_of_range(step.name + " has no variant '" + name + "'");
}

}  // namespace run
