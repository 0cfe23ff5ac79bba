// Step 01: multi-head attention, naively. Every kernel and every intermediate result goes through global memory.
//
// Host side: which kernels make up each variant, with which grids, and what they are predicted to cost.
#include "common/run/family/any_step.h"
#include "steps/01_naive_mha/01_projections.cuh"
#include "steps/01_naive_mha/02_row_per_thread.cuh"
#include "steps/01_naive_mha/03_element_per_thread.cuh"
#include "steps/01_naive_mha/04_coalesced.cuh"
#include "steps/01_naive_mha/05_block_softmax.cuh"
#include "steps/01_naive_mha/host.h"

namespace {

using namespace naive_mha;
using problem::Dtype;
using run::Arrays;
using run::AttentionLaunch;
using run::AttentionVariant;
using runtime::launch;

void launch_row_per_thread(const AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const Heads<float> s = as_bhss(l.arrays.get<float>("S"), l.shape);
  const Heads<float> p = as_bhss(l.arrays.get<float>("P"), l.shape);
  const dim3 rows = grid_over(shape.seq_q, shape.heads, shape.batch);
  launch(scores_row_per_thread, {.grid = rows, .block = threads}, shape, l.q.as<const float>(), l.k.as<const float>(), s);
  launch(softmax_row_per_thread, {.grid = rows, .block = threads}, shape, read_only(s), p, l.lse);
  launch(pv_row_per_thread, {.grid = rows, .block = threads}, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

void launch_element_uncoalesced(const AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const Heads<float> s = as_bhss(l.arrays.get<float>("S"), l.shape);
  const Heads<float> p = as_bhss(l.arrays.get<float>("P"), l.shape);
  const dim3 rows = grid_over(shape.seq_q, shape.heads, shape.batch);
  const dim3 scores = grid_over(std::int64_t{shape.seq_q} * shape.seq_k, shape.heads, shape.batch);
  const dim3 outputs = grid_over(std::int64_t{shape.seq_q} * shape.dim, shape.heads, shape.batch);
  launch(scores_uncoalesced, {.grid = scores, .block = threads}, shape, l.q.as<const float>(), l.k.as<const float>(), s);
  launch(softmax_row_per_thread, {.grid = rows, .block = threads}, shape, read_only(s), p, l.lse);
  launch(pv_uncoalesced, {.grid = outputs, .block = threads}, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

// The coalesced variants differ in the softmax kernel and in the layout of S and P.
template <class Layout, class Softmax>
void launch_coalesced(const AttentionLaunch& l, Layout layout, Softmax softmax) {
  const auto shape = l.device_shape();
  const Heads<float> s = layout(l.arrays.get<float>("S"), l.shape);
  const Heads<float> p = layout(l.arrays.get<float>("P"), l.shape);
  const std::int64_t seq_k = shape.seq_k;
  const Heads<float> k_by_dim{l.arrays.get<float>("K by dim"), shape.kv_heads * shape.dim * seq_k, shape.dim * seq_k, seq_k};
  const dim3 keys = grid_over(shape.dim * seq_k, shape.kv_heads, shape.batch);
  const dim3 scores = grid_over(shape.seq_q * seq_k, shape.heads, shape.batch);
  const dim3 outputs = grid_over(std::int64_t{shape.seq_q} * shape.dim, shape.heads, shape.batch);
  launch(transpose_k, {.grid = keys, .block = threads}, shape, l.k.as<const float>(), k_by_dim);
  launch(scores_coalesced, {.grid = scores, .block = threads}, shape, l.q.as<const float>(), read_only(k_by_dim), s);
  softmax(shape, read_only(s), p, l.lse);
  launch(pv_coalesced, {.grid = outputs, .block = threads}, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

void softmax_by_rows(AttentionShape shape, Heads<const float> s, Heads<float> p, float* lse) {
  launch(softmax_row_per_thread, {.grid = grid_over(shape.seq_q, shape.heads, shape.batch), .block = threads}, shape, s, p,
         lse);
}

void softmax_by_blocks(AttentionShape shape, Heads<const float> s, Heads<float> p, float* lse) {
  const dim3 rows(static_cast<unsigned>(shape.seq_q), static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch));
  launch(softmax_block_per_row, {.grid = rows, .block = softmax_threads, .shared_bytes = sizeof(SoftmaxSmem)}, shape, s, p,
         lse);
}

Arrays scores_only(const Attention& a) { return {score_matrix("S", a), score_matrix("P", a)}; }

Arrays scores_and_transposed_keys(const Attention& a) {
  return scores_only(a) + Arrays{run::scratch("K by dim", Dtype::fp32, {a.batch, a.kv_heads, a.dim, a.seq_k})};
}

problem::KernelCost named(std::string kernel, problem::KernelCost cost) {
  cost.kernel = std::move(kernel);
  return cost;
}

std::vector<problem::KernelCost> cost_of(const Attention& a, const char* scores, const char* softmax, const char* pv) {
  return {named(scores, problem::scores_cost(a)), named(softmax, problem::softmax_cost(a)), named(pv, problem::pv_cost(a))};
}

std::vector<problem::KernelCost> coalesced_cost(const Attention& a, const char* softmax) {
  std::vector<problem::KernelCost> kernels = cost_of(a, "scores_coalesced", softmax, "pv_coalesced");
  kernels.insert(kernels.begin(), named("transpose_k", problem::transpose_cost(a)));
  return kernels;
}

std::size_t softmax_shared_memory(const Attention&) { return sizeof(SoftmaxSmem); }

const std::vector<AttentionVariant> variants = {
    {.name = "row_per_thread",
     .idea = "one thread computes a whole query row",
     .scratch = scores_only,
     .cost =
         [](const Attention& a) { return cost_of(a, "scores_row_per_thread", "softmax_row_per_thread", "pv_row_per_thread"); },
     .launch = launch_row_per_thread},
    {.name = "element_uncoalesced",
     .idea = "one thread per element, neighbouring lanes on neighbouring rows",
     .scratch = scores_only,
     .cost = [](const Attention& a) { return cost_of(a, "scores_uncoalesced", "softmax_row_per_thread", "pv_uncoalesced"); },
     .launch = launch_element_uncoalesced},
    {.name = "element_coalesced",
     .idea = "neighbouring lanes on neighbouring columns, K transposed once",
     .scratch = scores_and_transposed_keys,
     .cost = [](const Attention& a) { return coalesced_cost(a, "softmax_row_per_thread"); },
     .launch = [](const AttentionLaunch& l) { launch_coalesced(l, as_bhss, softmax_by_rows); }},
    {.name = "block_softmax",
     .idea = "a block per softmax row, reducing through shared memory",
     .shared_bytes = softmax_shared_memory,
     .scratch = scores_and_transposed_keys,
     .cost = [](const Attention& a) { return coalesced_cost(a, "softmax_block_per_row"); },
     .launch = [](const AttentionLaunch& l) { launch_coalesced(l, as_bhss, softmax_by_blocks); }},
    {.name = "scores_bshs",
     .idea = "the same kernels, S and P stored as [batch, seq_q, heads, seq_k]",
     .shared_bytes = softmax_shared_memory,
     .scratch = scores_and_transposed_keys,
     .cost = [](const Attention& a) { return coalesced_cost(a, "softmax_block_per_row"); },
     .launch = [](const AttentionLaunch& l) { launch_coalesced(l, as_bshs, softmax_by_blocks); }},
};

std::vector<run::Estimate> estimates(const Attention& a) {
  std::vector<run::Estimate> estimates;
  if (a.seq_k > 3 * softmax_threads && a.seq_k % 32 != 0) {
    for (const runtime::Op op : {runtime::Op::load, runtime::Op::store}) {
      estimates.push_back({"softmax_block_per_row", runtime::Space::global, op,
                           "nvcc unrolls the loops over keys by four; lanes that take one key more than their neighbours split "
                           "off in the last round"});
    }
  }
  for (const char* kernel : {"pv_row_per_thread", "pv_uncoalesced", "pv_coalesced"}) {
    if (!a.causal) break;
    estimates.push_back({kernel, runtime::Space::global, runtime::Op::load,
                         "nvcc unrolls the loop over keys by four; lanes that see different numbers of keys split up over the "
                         "unrolled loop and its remainder"});
  }
  return estimates;
}

void launch_linear(const run::ProjectionLaunch& l) {
  launch(linear, {.grid = grid_over(std::int64_t{l.rows} * l.out, 1, 1), .block = threads}, l.rows, l.in, l.out, l.x, l.weight,
         l.bias, l.y);
}

}  // namespace

namespace naive_mha {

run::AnyStep step() {
  static const run::AttentionStep step{
      {.name = "01_naive_mha",
       .question = "What does attention cost when every intermediate result goes through memory?",
       .default_shape = {.heads = 4, .kv_heads = 4, .seq_q = 128, .seq_k = 128, .dim = 64},
       .default_variant = "block_softmax",
       .variants = variants,
       .estimates = estimates},
      launch_linear};
  return &step;
}

}  // namespace naive_mha
