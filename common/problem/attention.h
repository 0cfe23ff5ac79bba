// What attention computes: O = softmax(scale · Q Kᵀ + mask) V per batch entry and query head, and LSE = log Σ exp(scores).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/sparse_mask.h"
#include "common/problem/tensor.h"

namespace problem {

struct Attention {
  int batch = 1;
  int heads = 1;     // query heads
  int kv_heads = 1;  // key/value heads; query head h reads key/value head h / (heads / kv_heads)
  int seq_q = 1;
  int seq_k = 1;
  int dim = 64;                     // of one head
  bool causal = false;              // query i sees keys j ≤ i + seq_k − seq_q (aligned bottom-right)
  int window = 0;                   // N > 0: key j is seen only if |i + seq_k − seq_q − j| < N; 0: no window
  std::optional<float> scale = {};  // factor on Q Kᵀ; resolve() fills in 1/√dim where there is none
  Dtype dtype = Dtype::fp32;
  // Packed sequences: sums of their lengths, from 0 to seq_q = seq_k; query i sees only keys of its own sequence. Empty: none.
  std::vector<std::int32_t> cu_seqlens = {};
  // Dropout: P of a pair (query, key) is left out with probability dropout / 256, and the others are multiplied by
  // 256 / (256 − dropout). common/device/dropout.h says which pairs; 0: none.
  int dropout = 0;
  std::uint64_t dropout_seed = 0;
  bool writes_mask = false;  // the pairs that are kept are an output, too: 1 for each, 0 for those left out
  // Blocks of keys that heads leave out, besides; null: none. Two problems are equal only if they share the mask.
  std::shared_ptr<const SparseMask> sparse = nullptr;

  bool is_packed() const { return !cu_seqlens.empty(); }

  // The tokens [first, end) of a packed token's sequence; all keys where no sequences are packed.
  struct Sequence {
    int first, end;
  };
  Sequence sequence_of(int token) const;

  // The keys that query i sees are [first_key(i), last_key(i)), within [0, seq_k]; none where the two are equal. A sparse mask
  // leaves out some of them.
  int first_key(int i) const;
  int last_key(int i) const;

  std::int64_t dense_pairs() const;  // visible (query, key) pairs of one head, but for a sparse mask
  double live_pairs() const;         // of all heads and batch entries, under all masks
  double flops() const;              // 4 · dim · live pairs: the convention of every table here
  double compulsory_bytes() const;   // Q, K, V read once, O and LSE written once
  bool operator==(const Attention&) const = default;
};

// Throws std::invalid_argument, saying where, for what are no sums of the lengths of packed sequences with a token.
void require_sums(const std::vector<std::int32_t>& cu_seqlens);

// Fills in scale. Throws std::invalid_argument, naming the field, where one is out of range, or where packed sequences do not
// fit into one batch entry; or where a mask of dropout would be larger than 1 GB. Within the ranges no product of extents
// overflows a std::int64_t, not even in bytes, no sum of two extents an int, and scale · log2(e) is an fp32 number.
Attention resolve(Attention shape);

std::string to_string(const Attention& shape);  // "batch 1, heads 12 over 12, 200 × 200, dim 32, causal, fp32"

struct AttentionInputs {
  Tensor q;  // [batch, heads, seq_q, dim]
  Tensor k;  // [batch, kv_heads, seq_k, dim]
  Tensor v;  // [batch, kv_heads, seq_k, dim]
};

enum class InputKind {
  normal,   // close to N(0, 1), V offset by +0.5 so that outputs keep away from zero
  large,    // as normal, with Q scaled so that scores reach ±100 and beyond: a missing maximum overflows
  one_hot,  // one key dominates each row (for dim of 32 and more)
  uniform,  // all scores of a row are equal (K is one repeated row): O is the mean of the visible V
};

// The same values on every machine and compiler (counter-based generator); rounded to shape.dtype. Takes about a second for
// 100 million values.
AttentionInputs make_inputs(const Attention& shape, std::uint64_t seed, InputKind kind = InputKind::normal);

}  // namespace problem
