// Runs a variant on a problem and judges what comes out: what the command line does, and what the tests of every step call.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/check/verdict.h"
#include "common/device/runtime.h"
#include "common/problem/attention.h"
#include "common/run/heads_buffer.h"
#include "common/run/measure.h"
#include "common/run/step.h"
#include "common/run/truth.h"

namespace run {

struct ExecuteOptions {
  bool check = true;        // judge the outputs, and run a second time to compare bits
  bool counters = false;    // count what the simulator can count, in the first run
  bool trace = false;       // trace a warp of each kernel in that run
  int repetitions = 0;      // timed samples after a warm-up; 0: none. Only on a GPU
  HeadsLayout layout = {};  // of Q, K, V and O; a layer has its own, a matrix product only gaps
};

struct NamedTensor {
  std::string name;  // "o": of the file, too
  problem::Tensor tensor;
  problem::Dtype dtype;
};

struct Outcome {
  std::vector<NamedTensor> outputs;
  std::optional<check::Verdict> verdict;         // nothing where no check was asked for
  std::vector<device::Finding> findings;         // of the simulator
  std::vector<device::KernelCounters> counters;  // of the first run, where the simulator was told to count
  std::vector<device::KernelTrace> traces;       // and to trace
  std::optional<Times> times;
  double host_seconds = 0;  // the first launch and the wait for its end, by the host's clock

  bool pass() const { return findings.empty() && (!verdict || verdict->pass()); }
  const problem::Tensor& output(const std::string& name) const;  // throws std::out_of_range
};

// O ("o" [batch, heads, seq_q, dim]) and LSE ("lse" [batch, heads, seq_q]) of one variant. The shape is resolved, and the
// inputs are rounded to its dtype. `truth` is computed here where it is not given. Throws std::invalid_argument for a request
// that the variant does not support, device::OutOfMemory, device::Error.
Outcome execute(const AttentionVariant& variant, const problem::Attention& shape, const problem::AttentionInputs& inputs,
                const ExecuteOptions& options = {}, const AttentionTruth* truth = nullptr);

// The same for a whole self-attention layer, in fp32: qkv = x · in_projᵀ + bias, attention on its three parts, and
// y = O · out_projᵀ + bias ("y" [batch, seq, E], after "o" and "lse"). The step must have `linear`.
Outcome execute_layer(const AttentionStep& step, const AttentionVariant& variant, const problem::Attention& shape,
                      const LayerInputs& inputs, const ExecuteOptions& options = {}, const LayerTruth* truth = nullptr);

// ---- for other families of problems ----

// A variant with its memory, ready to run: what all families have in common.
struct Program {
  std::function<void()> poison;  // every output and all scratch memory
  std::function<void()> launch;
  std::function<std::vector<NamedTensor>()> download;
  std::function<bool()> surroundings_intact;  // of every buffer
  std::function<std::vector<check::TensorVerdict>(const std::vector<NamedTensor>&)> judge;
  bool deterministic = true;
};

Outcome run_program(const Program& program, const ExecuteOptions& options);

}  // namespace run
