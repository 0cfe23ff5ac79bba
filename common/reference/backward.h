// The gradients of attention, in double precision; beside them the baseline (what an honest implementation gets in the kernel's
// own dtype), and how far honest implementations may part.
//
// Every tensor is dense and in C order; the shape stands behind each parameter: q, o and d_o [batch, heads, seq_q, dim], k and
// v [batch, kv_heads, seq_k, dim], lse [batch, heads, seq_q]. A span of another length throws std::invalid_argument.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/reference/attention.h"
#include "common/reference/round.h"

namespace reference {

// One row of dK and dV: what is computed for one key.
struct KeyRow {
  int batch = 0;
  int kv_head = 0;
  int key = 0;
  bool operator==(const KeyRow&) const = default;
};
std::string to_string(const KeyRow& row);  // "batch 0, kv head 1, key 17"

// The index of a row among all rows of dK: its place in a dense [batch, kv_heads, seq_k] array.
std::int64_t flat_index(const AttentionSpec& spec, const KeyRow& row);

// The queries of one head that see a key: [begin, end).
struct QueryRange {
  int begin = 0;
  int end = 0;
  bool empty() const { return begin >= end; }
  int count() const { return empty() ? 0 : end - begin; }
};
QueryRange queries_seeing(const AttentionSpec& spec, int key);

// The queries of a head that see a key, one by one, in order: those of that range that spec.sees does not hide. And whether no
// head of its group has any.
std::vector<int> seeing_queries(const AttentionSpec& spec, const KeyRow& row, int head);
bool is_unseen(const AttentionSpec& spec, const KeyRow& row);

// Rows of dQ, and rows of dK and dV.
struct BackwardRows {
  std::vector<Row> queries;
  std::vector<KeyRow> keys;
};
BackwardRows all_backward_rows(const AttentionSpec& spec);  // in C order

// For problems whose whole truth would take minutes. Queries: sample_rows(). Keys: per_head rows (at least 64; all where there
// are no more) of some key/value heads. A key needs the LSE of every query of its group, 4 · dim FLOPs for each pair, so as
// many heads are sampled as most_flops pay for: always the first and the last, the others evenly spread. Equal seeds give equal
// rows.
BackwardRows sample_backward_rows(const AttentionSpec& spec, double most_flops = 4e9, int per_head = 64,
                                  std::uint64_t seed = 1);

struct Gradients {
  std::vector<double> dq;  // [queries, dim]
  std::vector<double> dk;  // [keys, dim]
  std::vector<double> dv;  // [keys, dim]
};

// Gradients of Σ dO ∘ O in double (FlashAttention-2, section 2.2): dV = Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP − D) with
// D = rowsum(P ∘ dP), dQ = scale · dS K, dK = scale · dSᵀ Q. dK and dV sum over the query heads that share a key/value head.
//
// Masked pairs are never read: a NaN in the input touches only the rows that depend on it through visible pairs, dQ of the
// queries that see it, and dK (dV as far as P or dO is touched) of all keys that those see. A score of −∞ has P = 0, and 0 ·
// NaN is NaN. A query whose LSE is −∞ (it sees no key, or all its scores are −∞) adds nothing to any gradient, not even 0 ·
// NaN. Dropout multiplies P by 0 or its factor before dV, and dO Vᵀ by the same before it is dP; D and LSE are as they were. +∞
// or NaN among its scores makes P of that query NaN. The result does not depend on the number of threads.
Gradients backward(const AttentionSpec& spec, const BackwardRows& rows, std::span<const float> q, std::span<const float> k,
                   std::span<const float> v, std::span<const float> d_o);
Gradients backward(const AttentionSpec& spec, const BackwardRows& rows, std::span<const double> q, std::span<const double> k,
                   std::span<const double> v, std::span<const double> d_o);

// Of all rows: dq [batch, heads, seq_q, dim], dk and dv [batch, kv_heads, seq_k, dim].
Gradients backward(const AttentionSpec& spec, std::span<const float> q, std::span<const float> k, std::span<const float> v,
                   std::span<const float> d_o);
Gradients backward(const AttentionSpec& spec, std::span<const double> q, std::span<const double> k, std::span<const double> v,
                   std::span<const double> d_o);

struct GradientsBaseline {
  std::vector<float> dq;  // [queries, dim]
  std::vector<float> dk;  // [keys, dim]
  std::vector<float> dv;  // [keys, dim]
};

// The gradients as an honest implementation in the kernel's dtype gets them, from inputs, O and LSE that are already rounded: S
// and dP summed in fp32 in the order of dim; P = exp(S − LSE) in fp32; D = rowsum(dO ∘ O) in fp32; P rounded to the dtype
// before dV, and P ∘ (dP − D) before dK and dQ; their sums in fp32, in order; the scale applied to these; the result rounded.
// Queries whose LSE is −∞ add nothing. With keep_fp32 nothing is rounded further.
GradientsBaseline backward_baseline(const AttentionSpec& spec, const BackwardRows& rows, std::span<const float> q,
                                    std::span<const float> k, std::span<const float> v, std::span<const float> d_o,
                                    std::span<const float> o, std::span<const float> lse, Round round = keep_fp32);

// What P and dS are rounded to before they are multiplied.
struct Format {
  double unit = 0x1p-24;       // half the distance between 1 and its neighbour: 2⁻¹¹ in fp16, 2⁻⁸ in bf16
  double smallest = 0x1p-149;  // the smallest number above 0
  double largest = 0x1p128;
};

// Of one tensor; all [rows, dim].
struct SumRounding {
  std::vector<double> size;    // the root of Σ terms², or |truth| where that is more
  std::vector<double> sum;     // how far rounding moves the element
  std::vector<double> stored;  // where O and LSE as stored put it, less the truth
  std::vector<std::uint8_t> may_overflow;
};

// How far any honest implementation may be from the truth, whatever the order of its sums. With u = 2⁻²⁴:
//   P_ij    is off by a factor exp(±ρ), ρ = √(dim + 2) · u · |scale| ‖Q_i‖ ‖K_j‖ (its score) + 6 u |LSE_i| (base 2) + 4 u
//   dP_ij   by √(dim + 2) · u · ‖dO_i‖ ‖V_j‖, D_i by √(dim + 2) · u · ‖dO_i‖ ‖O_i‖: random walks of dim additions
//   dS_ij   by all of these: P of (dP − D) by ρ (|dP| + |D|), since D may be summed from P ∘ dP, too; by one rounding of P to
//           the format, which may come before the product
//   a sum   of n terms by √n · u · Σ |terms|, and by the errors of its terms: as if they were independent, plus as if all had
//           one sign. What the format's smallest numbers lose of P and dS (scaled or not) is added.
// O and LSE as stored are rounded too, and D and P made from them are off alike in every implementation that uses them. That is
// no allowance to all sides: `stored` is the one direction in which it moves a row.
//
// Nor is an offset of K one: Σ_j dS_ij = 0, so what all keys share adds nothing to dQ but the rounding of that zero. So dQ's
// terms are taken from K_j − mean_key, and a row of dQ may be off by as much as `along` times the mean key besides.
struct GradientRounding {
  SumRounding dq, dk, dv;
  std::vector<double> mean_key;  // [queries, dim]: Σ_j P_ij K_j
  std::vector<double> along;     // [queries]
  // 1 for each row that says nothing: ρ is above ¼ for one of its pairs, and P may be above 2⁻¹⁰ there. Honest implementations
  // differ by any factor.
  std::vector<std::uint8_t> lost_queries, lost_keys;
};

// truth is backward() of the same rows.
GradientRounding backward_rounding(const AttentionSpec& spec, const BackwardRows& rows, std::span<const float> q,
                                   std::span<const float> k, std::span<const float> v, std::span<const float> d_o,
                                   std::span<const float> o, std::span<const float> lse, const Gradients& truth,
                                   const Format& format = {});

}  // namespace reference
