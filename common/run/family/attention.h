// The family of attention: what its steps offer, take and give.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/device/shapes.h"
#include "common/problem/attention.h"
#include "common/run/family/attention_truth.h"
#include "common/run/harness/execute.h"

namespace run {

constexpr int most_heads = 65535;  // CUDA's limit on y and z of a grid

// What a variant can compute. A request beyond it is refused by name, never served wrongly.
struct AttentionSupport {
  std::vector<problem::Dtype> dtypes = {problem::Dtype::fp32};
  std::vector<int> dims = {};  // the head dims it takes; empty: every one from 1 to max_dim
  int max_dim = 256;
  bool causal = true;
  bool window = false;
  bool packed = false;  // packed sequences: cu_seqlens
  bool dropout = false;
  bool packed_dropout = false;                    // both at once
  std::vector<int> sparse_q = {}, sparse_k = {};  // a sparse mask, with blocks of so many queries, and keys; empty: none
  bool sparse_tokens = false;                     // heads that stream by token, too
  bool grouped_heads = true;                      // kv_heads < heads
  bool softcap = false, alibi = false, bias = false, sinks = false;
  bool lengths = false, pages = false;      // of a padded cache, of a paged one
  int row_alignment = 1;                    // bytes: rows of Q, K, V and O begin at multiples of so many
  std::int64_t max_row_stride = INT64_MAX;  // elements from one of these rows to the next
  int max_batch = 65535;                    // as heads: both go to y and z of a grid
  int max_heads = most_heads;
  // What else is beyond it, in words, of a request that all of the above allow; empty: nothing.
  std::function<std::string(const problem::Attention&)> beyond = {};
};

std::string to_string(const AttentionSupport& supports);  // "fp32; any dim up to 256; causal; any length; grouped heads"

// Why the request cannot be served, naming what is supported; nothing if it can.
std::optional<std::string> refusal(const AttentionSupport& supports, const problem::Attention& shape);

// What kernels take of a resolved problem without packed sequences; with them: packed.h.
inline device::AttentionShape device_shape(const problem::Attention& a) {
  return {.batch = a.batch,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .seq_q = a.seq_q,
          .seq_k = a.seq_k,
          .dim = a.dim,
          .causal = a.causal,
          .scale = a.scale.value(),
          .window = a.window};
}

// One launch of a variant: everything in device memory.
struct AttentionLaunch {
  problem::Attention shape;
  device::AnyHeads<true> q;    // [batch, heads, seq_q, dim]
  device::AnyHeads<true> k;    // [batch, kv_heads, seq_k, dim]; of a paged cache [pages, kv_heads, page size, dim]
  device::AnyHeads<true> v;    // as K
  device::AnyHeads<false> o;   // [batch, heads, seq_q, dim]
  float* lse;                  // [batch, heads, seq_q], natural logarithm
  const DeviceArrays& arrays;  // all of the program's; a step takes its scratch memory from it

  device::AttentionShape device_shape() const { return run::device_shape(shape); }
};

// The same for where a launch's rows lie, which the shape does not say; and given whether all of them begin where they must,
// and the most elements from one to the next.
std::optional<std::string> refusal_of_rows(const AttentionSupport& supports, bool aligned, std::int64_t row_stride);
std::optional<std::string> refusal(const AttentionSupport& supports, const AttentionLaunch& launch);

// Of packed sequences: cu_seqlens [sequences + 1], and the ends of each token's sequence [seq_q].
Arrays packed_arrays(const problem::Attention& a);
std::vector<Given> given_packed(const problem::Attention& a);

// Of a sparse mask: block_mask, as bits [batches, heads, query blocks, words], head_type [heads] and streaming [heads, 2], as
// far as there are any; and its values.
Arrays sparse_arrays(const problem::Attention& a);
std::vector<Given> given_sparse(const problem::Attention& a);

// Of options of scores and of the cache, as far as there are any: bias, with the problem's dtype, sinks [heads] in fp32,
// lengths [batch], and pages [batch, columns].
Arrays score_arrays(const problem::Attention& a);
std::vector<Given> given_scores(const problem::Attention& a);

// Of dropout, where the problem asks for its mask: mask [batch, heads, seq_q, seq_k], fp16.
Arrays mask_arrays(const problem::Attention& a);
// Its verdict: every pair as the reference has it. None where there is no mask among the outputs.
std::vector<check::TensorVerdict> judge_mask(const problem::Attention& a, const std::vector<NamedTensor>& outputs);

struct AttentionFamily {
  using Problem = problem::Attention;
  using Inputs = problem::AttentionInputs;
  using Support = AttentionSupport;
  using Launch = AttentionLaunch;
  using Truth = AttentionTruth;

  static Arrays arrays(const Problem& a, Layout layout = {});
  static std::vector<Given> given(const Problem& a, const Inputs& inputs);
  static Launch bind(const Problem& a, const DeviceArrays& arrays);
  static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
};

using AttentionVariant = Variant<AttentionFamily>;

// Variants with a limit that all of them share: AttentionSupport::beyond.
template <class OneVariant>
std::vector<OneVariant> limited(std::vector<OneVariant> variants,
                                const std::function<std::string(const problem::Attention&)>& beyond) {
  for (OneVariant& variant : variants) variant.supports.beyond = beyond;
  return variants;
}

// y[row][o] = Σ_i x[row][i] · weight[o][i] + bias[o], fp32, in device memory.
struct ProjectionLaunch {
  int rows, in, out;
  const float* x;       // [rows, in]
  const float* weight;  // [out, in]
  const float* bias;    // [out]
  float* y;             // [rows, out]
};

struct BackwardStep;

struct AttentionStep : Step<AttentionFamily> {
  std::function<void(const ProjectionLaunch&)> linear = {};  // set by steps that carry the whole layer (--layer)
  const BackwardStep* backward = nullptr;                    // set by steps whose executable has both passes (--backward)
};

// A whole self-attention layer, in fp32, around a variant: qkv = x · in_projᵀ + bias, attention on its three parts, and
// y = O · out_projᵀ + bias. The step must have `linear`; `inputs` are used when the program runs.
Program layer_program(const AttentionStep& step, const AttentionVariant& variant, const problem::Attention& shape,
                      const LayerInputs& inputs);

std::vector<check::TensorVerdict> judge_layer(const LayerTruth& truth, const std::vector<NamedTensor>& outputs);

// Runs it: "o", "lse" and "y" [batch, seq, E]. Throws as execute().
Outcome execute_layer(const AttentionStep& step, const AttentionVariant& variant, const problem::Attention& shape,
                      const LayerInputs& inputs, const ExecuteOptions& options = {}, const LayerTruth* truth = nullptr);

int step_main(int argc, char** argv, const AttentionStep& step);  // attention_main.cpp

}  // namespace run
