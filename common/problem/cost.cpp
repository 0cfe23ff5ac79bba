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
  const double kv_heads = static_cast<double>(shape.batch) * shape.kv_heads;
  const double element = static_cast<double>(bytes(shape.dtype));
  const double query_bytes = heads * shape.seq_q * shape.dim * element;
  const double key_bytes = kv_heads * shape.seq_k * shape.dim * element;
  return {.live = heads * static_cast<double>(shape.live_pairs()),
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

KernelCost linear_cost(std::string kernel, double rows, double in, double out) {
  return {std::move(kernel), 2 * rows * in * out, sizeof(float) * (rows * in + out * in + out), sizeof(float) * rows * out};
}

KernelCost gemm_cost(const Gemm& shape, std::string kernel) {
  const double c = static_cast<double>(bytes(shape.dtype)) * shape.batch * shape.m * shape.n;
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
