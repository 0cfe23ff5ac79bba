// What an attention step offers. step.cu fills in one of these; the executable, the tests, the tour, the benchmarks and the
// tables of the book are all made from it.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/device/attention.cuh"
#include "common/device/views.h"
#include "common/problem/attention.h"
#include "common/problem/cost.h"
#include "common/run/counters.h"
#include "common/run/scratch.h"

namespace run {

// What a variant can compute. A request beyond it is refused by name, never served wrongly.
struct AttentionSupport {
  std::vector<problem::Dtype> dtypes = {problem::Dtype::fp32};
  std::vector<int> dims = {};  // the head dims it takes; empty: every one from 1 to max_dim
  int max_dim = 256;
  bool causal = true;
  bool window = false;
  bool grouped_heads = true;  // kv_heads < heads
  int row_alignment = 1;      // bytes: rows of Q, K, V and O begin at multiples of so many
  int max_batch = 65535;      // CUDA's limit on y and z of a grid, which is where batch and heads go
  int max_heads = 65535;
};

std::string to_string(const AttentionSupport& supports);  // "fp32; any dim up to 256; causal; any length; grouped heads"

// Why the request cannot be served, naming what is supported; nothing if it can.
std::optional<std::string> refusal(const AttentionSupport& supports, const problem::Attention& shape);

// What kernels take of a resolved problem.
inline device::AttentionShape device_shape(const problem::Attention& a) {
  return {a.batch, a.heads, a.kv_heads, a.seq_q, a.seq_k, a.dim, a.causal, a.scale.value(), a.window};
}

// One launch of a variant: everything in device memory.
struct AttentionLaunch {
  problem::Attention shape;
  device::AnyHeads<true> q;   // [batch, heads, seq_q, dim]
  device::AnyHeads<true> k;   // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<true> v;   // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<false> o;  // [batch, heads, seq_q, dim]
  float* lse;                 // [batch, heads, seq_q], natural logarithm
  const Scratch& scratch;

  device::AttentionShape device_shape() const { return run::device_shape(shape); }
};

// The same for where a launch's rows lie, which the shape does not say.
std::optional<std::string> refusal(const AttentionSupport& supports, const AttentionLaunch& launch);

struct AttentionVariant {
  std::string name;
  std::string idea;  // in one line
  AttentionSupport supports;
  std::function<std::size_t(const problem::Attention&)> shared_bytes;  // of the block that needs the most
  std::function<std::vector<ScratchNeed>(const problem::Attention&)> scratch;
  std::function<std::vector<problem::KernelCost>(const problem::Attention&)> cost;  // one entry per kernel, in launch order
  std::function<void(const AttentionLaunch&)> launch;
  bool deterministic = true;       // two runs give the same bits
  std::string demonstration = {};  // why "all" leaves it out: it is there to be rejected. Empty for all others
};

// y[row][o] = Σ_i x[row][i] · weight[o][i] + bias[o], fp32, in device memory.
struct LinearLaunch {
  int rows, in, out;
  const float* x;       // [rows, in]
  const float* weight;  // [out, in]
  const float* bias;    // [out]
  float* y;             // [rows, out]
};

struct AttentionStep {
  std::string name;      // "01_naive_mha"
  std::string question;  // that the step answers, in one line
  problem::Attention default_shape;
  std::string default_variant;  // the best one
  std::vector<AttentionVariant> variants;
  std::function<void(const LinearLaunch&)> linear;  // set by steps that carry the whole layer (--layer)
  // Where nvcc's code accesses memory otherwise than the source says.
  std::function<std::vector<Estimate>(const problem::Attention&)> estimates = [](const auto&) {
    return std::vector<Estimate>{};
  };
};

const AttentionStep& this_step();  // defined by step.cu

}  // namespace run
