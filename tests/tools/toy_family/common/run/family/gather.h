// Toy family: rows of x that a list of ids names, times factors. Its arrays have four types, and two of them a length that
// only the launch knows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/run/harness/execute.h"

namespace run {

struct Gather {
  int rows = 1;                                 // of x
  int cols = 1;                                 // of x and y
  int ids = 1;                                  // rows of y
  problem::Dtype dtype = problem::Dtype::fp16;  // of x
  double flops() const { return double(ids) * cols; }
};

Gather resolve(const Gather& shape);  // throws std::invalid_argument for what cannot be
std::string to_string(const Gather& shape);

struct GatherInputs {
  problem::Tensor x;          // [rows, cols]
  problem::Integers factors;  // [cols], int8
  problem::Integers ids;      // [ids], each 0 … rows − 1
};
GatherInputs make_inputs(const Gather& shape, std::uint64_t seed);

struct GatherSupport {};
std::string to_string(const GatherSupport& supports);
std::optional<std::string> refusal(const GatherSupport& supports, const Gather& shape);

struct GatherLaunch {
  Gather shape;
  const void* x;               // [rows, cols]
  const std::int8_t* factors;  // [cols]
  const std::int32_t* ids;     // [ids]
  float* y;                    // [ids, cols]: x[ids[n]] · factors
  std::int32_t* taken;         // [rows]: how many ids name the row
  std::int32_t* missed_count;  // [1]: how many rows none names,
  std::int32_t* missed;        // [missed_count], at most [rows]: and which, in ascending order
  void* rest;                  // [missed_count, cols], of x's type: these rows
};

// The truth: all of it is exact, and so a verdict asks for equality.
class GatherTruth {
 public:
  GatherTruth(const Gather& shape, const GatherInputs& in);
  std::vector<check::TensorVerdict> judge(const std::vector<NamedTensor>& outputs) const;

 private:
  problem::Dtype dtype_;
  problem::Tensor y_, rest_;
  problem::Integers taken_, missed_;
};

struct GatherFamily {
  using Problem = Gather;
  using Inputs = GatherInputs;
  using Support = GatherSupport;
  using Launch = GatherLaunch;
  using Truth = GatherTruth;

  static Arrays arrays(const Problem& g, Layout layout = {});
  static std::vector<Given> given(const Problem& shape, const Inputs& in);
  static Launch bind(const Problem& g, const DeviceArrays& arrays);
  static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
};

using GatherVariant = Variant<GatherFamily>;
using GatherStep = Step<GatherFamily>;

int step_main(int argc, char** argv, const GatherStep& step);  // gather_main.cpp

}  // namespace run
