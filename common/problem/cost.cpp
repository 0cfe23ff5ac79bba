#include "common/problem/cost.h"

#include <algorithm>
#include <utility>

namespace problem {
namespace {

struct Counts {
  double live;           // visible (query, key) pairs of all heads
  double q, k, v, o, s;  // bytes of each tensor; S and P are equal
  double lse;
};

Counts counts(const Attention& shape) {
  const double heads = static_cast<double>(shape.batch) * shape.heads;
  const double element = static_cast<double>(bytes(shape.dtype));
  const double query_bytes = heads * shape.seq_q * shape.dim * element;
  const double key_bytes = shape.keys() * shape.kv_heads * shape.dim * element;
  return {.live = shape.live_pairs(),
          .q = query_bytes,
          .k = key_bytes,
          .v = key_bytes,
          .o = query_bytes,
          .s = heads * shape.seq_q * shape.seq_k * element,
          .lse = heads * shape.seq_q * sizeof(float)};
}

}  // namespace

KernelCost scores_cost(const Attention& shape) {
  const Counts c = counts(shape);
  return {"scores", 2 * shape.dim * c.live, c.q + c.k, c.s};
}

KernelCost softmax_cost(const Attention& shape) {
  const Counts c = counts(shape);
  return {"softmax", 5 * c.live, c.s, c.s + c.lse};
}

KernelCost pv_cost(const Attention& shape) {
  const Counts c = counts(shape);
  return {"pv", 2 * shape.dim * c.live, c.s + c.v, c.o};
}

KernelCost transpose_cost(const Attention& shape) {
  const Counts c = counts(shape);
  return {"transpose_k", 0, c.k, c.k};
}

KernelCost flash_cost(const Attention& shape, std::string kernel) {
  const Counts c = counts(shape);
  return {std::move(kernel), shape.flops(), c.q + c.k + c.v, c.o + c.lse};
}

KernelCost find_sequences_cost(const Attention& a) {
  return {"find_sequences", 0, sizeof(std::int32_t) * static_cast<double>(a.cu_seqlens.size()),
          2.0 * sizeof(std::int32_t) * a.seq_q};
}

KernelCost mask_cost(const Attention& a) {
  return {"write_mask", 0, 0, 2.0 * a.batch * a.heads * a.seq_q * static_cast<double>(a.seq_k)};
}

KernelCost linear_cost(std::string kernel, double rows, double in, double out) {
  return {std::move(kernel), 2 * rows * in * out, sizeof(float) * (rows * in + out * in + out), sizeof(float) * rows * out};
}

namespace {

struct BackwardCounts : Counts {
  double pairs;       // bytes of P, dP or dS in fp32
  double sums;        // bytes of dQ's sums
  double statistics;  // bytes of LSE and D
};
BackwardCounts backward_counts(const Backward& shape) {
  const Counts c = counts(shape);
  const double to_fp32 = sizeof(float) / static_cast<double>(bytes(shape.dtype));
  return {c, c.s * to_fp32, c.q * to_fp32, 2 * c.lse};
}

}  // namespace

KernelCost prepare_cost(const Backward& shape, bool with_sums, std::string kernel) {
  const BackwardCounts c = backward_counts(shape);
  return {std::move(kernel), 2 * c.q / static_cast<double>(bytes(shape.dtype)), 2 * c.o + c.lse,
          c.statistics + (with_sums ? c.sums : 0)};
}

KernelCost pairs_cost(const Backward& shape, std::string kernel, bool of_p) {
  const BackwardCounts c = backward_counts(shape);
  return {std::move(kernel), 2 * shape.dim * c.live, c.q + c.k + (of_p ? c.lse : 0), c.pairs};
}

KernelCost softmax_gradient_cost(const Backward& shape) {
  const BackwardCounts c = backward_counts(shape);
  return {"row_softmax_gradient", 2 * c.live, 2 * c.pairs + c.lse, c.pairs};
}

KernelCost over_queries_cost(const Backward& shape) {
  const BackwardCounts c = backward_counts(shape);
  return {"over_queries", 2 * shape.dim * c.live, c.pairs + c.q, c.k};
}

KernelCost over_keys_cost(const Backward& shape) {
  const BackwardCounts c = backward_counts(shape);
  return {"over_keys", 2 * shape.dim * c.live, c.pairs + c.k, c.q};
}

KernelCost backward_cost(const Backward& shape, std::string kernel, int products, BackwardResult result) {
  const BackwardCounts c = backward_counts(shape);
  const double keys = result == BackwardResult::dq ? 0 : c.k + c.v;
  const double queries = result == BackwardResult::dk_dv ? 0 : result == BackwardResult::dq ? c.q : c.sums;
  return {std::move(kernel), 2 * products * shape.dim * c.live, 2 * c.q + c.k + c.v + c.statistics, keys + queries};
}

KernelCost convert_cost(const Backward& shape, std::string kernel) {
  const BackwardCounts c = backward_counts(shape);
  return {std::move(kernel), c.q / static_cast<double>(bytes(shape.dtype)), c.sums, c.q};
}

KernelCost gemm_cost(const Gemm& shape, std::string kernel) {
  const double c = static_cast<double>(bytes(shape.dtype)) * shape.batch * shape.m * shape.n;
  return {std::move(kernel), shape.flops(), shape.compulsory_bytes() - c, c};
}

KernelCost linear_cost(const Linear& shape, std::string kernel) {
  const double c = static_cast<double>(bytes(*shape.dtype_c)) * static_cast<double>(shape.entries()) * shape.m * shape.n;
  return {std::move(kernel), shape.flops(), shape.compulsory_bytes() - c, c};
}

KernelCost row_softmax_cost(const Softmax& shape, std::string kernel, int reads, int writes) {
  const double once = shape.compulsory_bytes() / 2;
  return {std::move(kernel), shape.flops(), reads * once, writes * once};
}

double h200_floor_seconds(const KernelCost& cost, Dtype dtype) {
  const double flops_per_second = dtype == Dtype::fp32 ? 51e12 : 645e12;
  return std::max((cost.bytes_read + cost.bytes_written) / 4.25e12, cost.flops / flops_per_second);
}

}  // namespace problem
