// Step 01: multi-head attention, naively. Every kernel and every intermediate result goes through device memory.
//
// Host side: which kernels make up each variant, with which grids, and what they are predicted to cost.
#include "1_projections.cuh"
#include "2_row_per_thread.cuh"
#include "3_element_per_thread.cuh"
#include "4_coalesced.cuh"
#include "5_block_softmax.cuh"
#include "host.h"

namespace {

using namespace naive_mha;
using device::launch;
using run::AttentionLaunch;

void launch_row_per_thread(const AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const Heads<float> s = as_bhss(l.scratch.get<float>("S"), l.shape);
  const Heads<float> p = as_bhss(l.scratch.get<float>("P"), l.shape);
  const dim3 rows = grid_over(shape.seq_q, shape.heads, shape.batch);
  launch(scores_row_per_thread, rows, threads, 0, shape, l.q.as<const float>(), l.k.as<const float>(), s);
  launch(softmax_row_per_thread, rows, threads, 0, shape, read_only(s), p, l.lse);
  launch(pv_row_per_thread, rows, threads, 0, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

void launch_element_uncoalesced(const AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const Heads<float> s = as_bhss(l.scratch.get<float>("S"), l.shape);
  const Heads<float> p = as_bhss(l.scratch.get<float>("P"), l.shape);
  const dim3 rows = grid_over(shape.seq_q, shape.heads, shape.batch);
  const dim3 scores = grid_over(std::int64_t{shape.seq_q} * shape.seq_k, shape.heads, shape.batch);
  const dim3 outputs = grid_over(std::int64_t{shape.seq_q} * shape.dim, shape.heads, shape.batch);
  launch(scores_uncoalesced, scores, threads, 0, shape, l.q.as<const float>(), l.k.as<const float>(), s);
  launch(softmax_row_per_thread, rows, threads, 0, shape, read_only(s), p, l.lse);
  launch(pv_uncoalesced, outputs, threads, 0, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

// The coalesced variants differ in the softmax kernel and in the layout of S and P.
template <class Layout, class Softmax>
void launch_coalesced(const AttentionLaunch& l, Layout layout, Softmax softmax) {
  const auto shape = l.device_shape();
  const Heads<float> s = layout(l.scratch.get<float>("S"), l.shape);
  const Heads<float> p = layout(l.scratch.get<float>("P"), l.shape);
  const std::int64_t seq_k = shape.seq_k;
  const Heads<float> k_by_dim{l.scratch.get<float>("K by dim"), shape.kv_heads * shape.dim * seq_k, shape.dim * seq_k, seq_k};
  const dim3 keys = grid_over(shape.dim * seq_k, shape.kv_heads, shape.batch);
  const dim3 scores = grid_over(shape.seq_q * seq_k, shape.heads, shape.batch);
  const dim3 outputs = grid_over(std::int64_t{shape.seq_q} * shape.dim, shape.heads, shape.batch);
  launch(transpose_k, keys, threads, 0, shape, l.k.as<const float>(), k_by_dim);
  launch(scores_coalesced, scores, threads, 0, shape, l.q.as<const float>(), read_only(k_by_dim), s);
  softmax(shape, read_only(s), p, l.lse);
  launch(pv_coalesced, outputs, threads, 0, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

void softmax_by_rows(AttentionShape shape, Heads<const float> s, Heads<float> p, float* lse) {
  launch(softmax_row_per_thread, grid_over(shape.seq_q, shape.heads, shape.batch), threads, 0, shape, s, p, lse);
}

void softmax_by_blocks(AttentionShape shape, Heads<const float> s, Heads<float> p, float* lse) {
  const dim3 rows(static_cast<unsigned>(shape.seq_q), static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch));
  launch(softmax_block_per_row, rows, softmax_threads, sizeof(SoftmaxSmem), shape, s, p, lse);
}

std::vector<run::ScratchNeed> scores_only(const Attention& a) { return {{"S", score_bytes(a)}, {"P", score_bytes(a)}}; }

std::vector<run::ScratchNeed> scores_and_transposed_keys(const Attention& a) {
  return {{"S", score_bytes(a)}, {"P", score_bytes(a)}, {"K by dim", key_bytes(a)}};
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

std::size_t no_shared_memory(const Attention&) { return 0; }
std::size_t softmax_shared_memory(const Attention&) { return sizeof(SoftmaxSmem); }

}  // namespace

const run::AttentionStep& run::this_step() {
  static const AttentionStep step = [] {
    AttentionStep s;
    s.name = "01_naive_mha";
    s.question = "What does attention cost when every intermediate result goes through memory?";
    s.default_shape.heads = 4;
    s.default_shape.kv_heads = 4;
    s.default_shape.seq_q = 128;
    s.default_shape.seq_k = 128;
    s.default_shape.dim = 64;
    s.default_variant = "block_softmax";
    s.variants = {
        {"row_per_thread",
         "one thread computes a whole query row",
         {},
         no_shared_memory,
         scores_only,
         [](const Attention& a) { return cost_of(a, "scores_row_per_thread", "softmax_row_per_thread", "pv_row_per_thread"); },
         launch_row_per_thread},
        {"element_uncoalesced",
         "one thread per element, neighbouring lanes on neighbouring rows",
         {},
         no_shared_memory,
         scores_only,
         [](const Attention& a) { return cost_of(a, "scores_uncoalesced", "softmax_row_per_thread", "pv_uncoalesced"); },
         launch_element_uncoalesced},
        {"element_coalesced",
         "neighbouring lanes on neighbouring columns, K transposed once",
         {},
         no_shared_memory,
         scores_and_transposed_keys,
         [](const Attention& a) { return coalesced_cost(a, "softmax_row_per_thread"); },
         [](const AttentionLaunch& l) { launch_coalesced(l, as_bhss, softmax_by_rows); }},
        {"block_softmax",
         "a block per softmax row, reducing through shared memory",
         {},
         softmax_shared_memory,
         scores_and_transposed_keys,
         [](const Attention& a) { return coalesced_cost(a, "softmax_block_per_row"); },
         [](const AttentionLaunch& l) { launch_coalesced(l, as_bhss, softmax_by_blocks); }},
        {"scores_bshs",
         "the same kernels, S and P stored as [batch, seq_q, heads, seq_k]",
         {},
         softmax_shared_memory,
         scores_and_transposed_keys,
         [](const Attention& a) { return coalesced_cost(a, "softmax_block_per_row"); },
         [](const AttentionLaunch& l) { launch_coalesced(l, as_bshs, softmax_by_blocks); }},
    };
    s.estimates = [](const Attention& a) {
      std::vector<run::Estimate> estimates;
      if (a.seq_k > 3 * softmax_threads && a.seq_k % 32 != 0) {
        for (const device::Op op : {device::Op::load, device::Op::store}) {
          estimates.push_back(
              {"softmax_block_per_row", device::Space::global, op,
               "nvcc unrolls the loops over keys by four; lanes that take one key more than their neighbours split "
               "off in the last round"});
        }
      }
      for (const char* kernel : {"pv_row_per_thread", "pv_uncoalesced", "pv_coalesced"}) {
        if (!a.causal) break;
        estimates.push_back(
            {kernel, device::Space::global, device::Op::load,
             "nvcc unrolls the loop over keys by four; lanes that see different numbers of keys split up over the "
             "unrolled loop and its remainder"});
      }
      return estimates;
    };
    s.linear = [](const LinearLaunch& l) {
      launch(linear, grid_over(std::int64_t{l.rows} * l.out, 1, 1), threads, 0, l.rows, l.in, l.out, l.x, l.weight, l.bias,
             l.y);
    };
    return s;
  }();
  return step;
}
