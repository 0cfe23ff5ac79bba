// Options of scores, for kernels. A score is what Q · K gives, times the scale, and then, in this order:
//
//     softcap   s becomes C tanh(s / C): between −C and C (Gemma Team 2024)
//     bias      s + bias[batch][head][query][key]: an additive mask, or what a model has learned. −∞ hides the key, and its V
//     ALiBi     s − slope · |own key − key|: keys far away count less, by another slope for each head (Press et al. 2022)
//
// A sink is a logit more in each row's softmax, without a row of V: a head may look at nothing (Xiao et al. 2024). It is added
// once, where a row's O is divided. And a padded cache has a length for each batch entry: what lies behind it is not there, and
// the last query lies beside the last key that is.
#pragma once

#include "common/device/online_softmax.cuh"
#include "common/device/shapes.h"

namespace device {

// Where the row of a key lies: in its batch entry, or in a page.
struct KeyPlace {
  int batch, row;
};

// A page table: which page of a pool has which keys of a batch entry.
struct PageTable {
  const int* table;  // [batch, columns]; null: K and V are not paged
  int columns;
  int shift;  // a page has 2^shift keys

  __device__ int row_of(int key) const { return key & ((1 << shift) - 1); }  // in its page
  __device__ KeyPlace place_of(int batch, int key) const {
    return {load(&table[std::int64_t{batch} * columns + (key >> shift)]), row_of(key)};
  }
};

// A shape whose scores have options. Kernels take it in place of an AttentionShape, as a template parameter, so that their
// machine code without options stays as it is.
template <class T>
struct ScoredShape : AttentionShape {
  float softcap;  // C; 0: none
  AlibiSlopes slopes;
  Heads<const T> bias;  // [batch, heads, seq_q, seq_k], of strides 0 where it is the same for all; without memory: none
  const float* sinks;   // [heads]; null: none
  const int* lengths;   // [batch]; null: all entries have seq_k keys
  PageTable pages;      // where K and V are paged: their first index is a page then, and their rows are keys of a page
};

template <class Shape>
inline constexpr bool has_score_options = false;
template <class T>
inline constexpr bool has_score_options<ScoredShape<T>> = true;

__device__ inline KeyPlace place_of(const AttentionShape&, int batch, int key) { return {batch, key}; }
template <class T>
__device__ KeyPlace place_of(const ScoredShape<T>& shape, int batch, int key) {
  return shape.pages.table == nullptr ? KeyPlace{batch, key} : shape.pages.place_of(batch, key);
}

// The shape of a batch entry: seq_k is its length. One that nobody checked may be none: no kernel leaves K and V for it.
__device__ inline AttentionShape entry_of(const AttentionShape& shape, int) { return shape; }
template <class T>
__device__ AttentionShape entry_of(const ScoredShape<T>& shape, int batch) {
  AttentionShape entry = shape;
  if (shape.lengths != nullptr) entry.seq_k = visibility::clamped(load(&shape.lengths[batch]), shape.seq_k);
  return entry;
}

// The same in place, for blocks that have one batch entry each.
template <class Shape>
__device__ void become_entry(Shape&, int) {}
template <class T>
__device__ void become_entry(ScoredShape<T>& shape, int batch) {
  if (shape.lengths != nullptr) shape.seq_k = visibility::clamped(load(&shape.lengths[batch]), shape.seq_k);
}

// A scaled score with the softcap, which is above 0. Of the smallest ones the quotient would be infinite, and 0 · ∞ is NaN.
__device__ inline float capped(float s, float softcap) { return softcap * tanhf(s * fminf(1.0f / softcap, FLT_MAX)); }
// A key's bias in a row of bias [seq_k]; 0 behind the last.
template <class T>
__device__ float bias_at(const T* row, int key, int seq_k) {
  const bool there = key < seq_k;
  return to_float(load_if(there, there ? &row[key] : nullptr));
}
// A score with its bias. From a key that is hidden nothing comes through, not even a NaN.
__device__ inline float biased(float s, float bias) { return bias == -INFINITY ? bias : s + bias; }

// Which of the 32 keys from `first` on a bias hides from a query, as bits. All lanes of a warp make the call.
template <class T>
__device__ std::uint32_t hidden_keys(const ScoredShape<T>& shape, int batch, int head, int query, int first) {
  if (shape.bias.data == nullptr) return 0;
  return __ballot_sync(
      ~0u, bias_at(shape.bias.row(batch, head, query), first + static_cast<int>(threadIdx.x % 32), shape.seq_k) == -INFINITY);
}

// What a row's scores become: score(product, key) is in base 2, of a product that is not scaled yet.
template <class Shape>
struct RowScores {
  float scale_log2;

  __device__ void begin(const Shape& shape, int, int, int) { scale_log2 = shape.scale * log2_e; }
  // Rounded separately: otherwise nvcc would join it with the later subtraction of the maximum into one FMA, and the maximum, a
  // rounded product, would no longer be one of the scores.
  __device__ float score(float product, int) const { return __fmul_rn(product, scale_log2); }
  __device__ bool hides(int) const { return false; }
  static constexpr bool may_hide = false;
};

// [doc: row_scores]
template <class T>
struct RowScores<ScoredShape<T>> {
  float scale, softcap, slope;
  int own_key, seq_k;
  const T* bias;  // [seq_k]; null: none
  static constexpr bool may_hide = true;

  __device__ void begin(const ScoredShape<T>& shape, int batch, int head, int query) {
    const AttentionShape entry = entry_of(shape, batch);
    scale = shape.scale;
    softcap = shape.softcap;
    slope = shape.slopes.largest > 0.0f ? shape.slopes.of(head) : 0.0f;
    own_key = entry.own_key(query);
    seq_k = entry.seq_k;
    bias = shape.bias.data != nullptr ? shape.bias.row(batch, head, query) : nullptr;
  }
  __device__ float bias_of(int key) const { return bias != nullptr ? bias_at(bias, key, seq_k) : 0.0f; }
  __device__ float score(float product, int key) const {
    float s = product * scale;
    if (softcap > 0.0f) s = capped(s, softcap);
    s = biased(s, bias_of(key));
    if (slope > 0.0f) s -= slope * static_cast<float>(abs(own_key - key));
    return __fmul_rn(s, log2_e);
  }
  __device__ bool hides(int key) const { return bias_of(key) == -INFINITY; }
};
// [/doc: row_scores]

// Takes a head's sink into the state of a row whose keys are all summed, and returns what O must be multiplied by.
__device__ inline float add_sink(const AttentionShape&, int, SoftmaxState&) { return 1.0f; }
template <class T>
__device__ float add_sink(const ScoredShape<T>& shape, int head, SoftmaxState& state) {
  if (shape.sinks == nullptr) return 1.0f;
  const MergedSoftmax all = merge(state, {load(&shape.sinks[head]) * log2_e, 1.0f});
  state = all.state;
  return all.first;
}

}  // namespace device
