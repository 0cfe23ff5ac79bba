// The family of attention's backward pass: what its steps offer, take and give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/problem/backward.h"
#include "common/run/family/attention.h"
#include "common/run/family/backward_truth.h"

namespace run {

// One launch of a variant: everything in device memory.
struct BackwardLaunch {
  problem::Backward shape;
  device::AnyHeads<true> q;    // [batch, heads, seq_q, dim]
  device::AnyHeads<true> k;    // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<true> v;    // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<true> o;    // [batch, heads, seq_q, dim], of the forward pass
  device::AnyHeads<true> d_o;  // [batch, heads, seq_q, dim]
  const float* lse;            // [batch, heads, seq_q], natural logarithm, of the forward pass
  device::AnyHeads<false> dq;  // [batch, heads, seq_q, dim]
  device::AnyHeads<false> dk;  // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<false> dv;  // [batch, kv_heads, seq_k, dim]
  const DeviceArrays& arrays;  // all of the program's; a step takes its scratch memory from it

  device::AttentionShape device_shape() const { return run::device_shape(shape); }
};

// Why rows that lie where the launch's do cannot be served; nothing if they can.
std::optional<std::string> refusal(const AttentionSupport& supports, const BackwardLaunch& launch);

struct BackwardFamily {
  using Problem = problem::Backward;
  using Inputs = problem::BackwardInputs;
  using Support = AttentionSupport;
  using Launch = BackwardLaunch;
  using Truth = BackwardTruth;

  static Arrays arrays(const Problem& a, Layout layout = {});
  static std::vector<Given> given(const Problem& a, const Inputs& inputs);  // O and LSE must be there
  static Launch bind(const Problem& a, const DeviceArrays& arrays);
  static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
};

using BackwardVariant = Variant<BackwardFamily>;

struct BackwardStep : Step<BackwardFamily> {
  const AttentionStep* forward = nullptr;  // whose kernels make O and LSE where they are not given
};

// O and LSE of a forward pass: of the forward step's default variant, or of the first one that supports the shape. Throws
// std::invalid_argument where none does, std::logic_error where the simulator finds a fault in it, and as execute().
void run_forward(const BackwardStep& step, const problem::Backward& shape, problem::BackwardInputs& inputs);

int step_main(int argc, char** argv, const BackwardStep& step);  // backward_main.cpp

}  // namespace run
