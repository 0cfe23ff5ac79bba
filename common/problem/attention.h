// What attention computes: O = softmax(scale · Q Kᵀ + mask) V per batch entry and query head, and LSE = log Σ exp(scores).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/pages.h"
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
  // What becomes of a scaled score s before the softmax, in this order: C tanh(s / C), with C the softcap; + bias; − slope ·
  // distance, with ALiBi. common/device/score_options.h has the formulas.
  float softcap = 0;                              // C; 0: none
  float alibi = 0;                                // the largest exponent of its slopes, 8 as a rule; 0: none
  std::shared_ptr<const Tensor> bias = nullptr;   // [batch or 1, heads or 1, seq_q or 1, seq_k]; −∞ hides the pair, V too
  std::shared_ptr<const Tensor> sinks = nullptr;  // [heads]: a logit more in each row's softmax, without a value
  // Of a padded cache: batch entry b has the keys 0 … lengths[b] − 1, and its last query lies beside the last of them, for
  // causal masks, windows and ALiBi. Empty: all have seq_k.
  std::vector<std::int32_t> lengths = {};
  std::shared_ptr<const Pages> pages = nullptr;  // where keys and values lie in a pool; null: each entry's one after the other

  bool is_packed() const { return !cu_seqlens.empty(); }
  bool has_score_options() const { return softcap > 0 || alibi > 0 || bias || sinks || !lengths.empty() || pages; }

  // The tokens [first, end) of a packed token's sequence; all keys where no sequences are packed.
  struct Sequence {
    int first, end;
  };
  Sequence sequence_of(int token) const;

  // A batch entry as a problem without lengths, whose seq_k may be 0.
  Attention entry(int batch_entry) const;

  // The keys that query i sees are [first_key(i), last_key(i)), within [0, seq_k]; none where the two are equal. A sparse mask
  // leaves out some of them, as do lengths, and a bias of −∞.
  int first_key(int i) const;
  int last_key(int i) const;

  std::int64_t dense_pairs() const;  // visible (query, key) pairs of one head, but for a sparse mask, lengths and a bias
  double live_pairs() const;         // of all heads and batch entries, under all masks; a bias is no mask here
  double keys() const;               // that batch entries have together
  double flops() const;              // 4 · dim · live pairs: the convention of every table here
  double compulsory_bytes() const;   // Q, K, V read once, O and LSE written once
  bool operator==(const Attention&) const = default;
};

// Throws std::invalid_argument, saying where, for what are no sums of the lengths of packed sequences with a token.
void require_sums(const std::vector<std::int32_t>& cu_seqlens);

// Throws std::invalid_argument where the problem cannot have these lengths of a padded cache.
void require_lengths(const Attention& shape, const std::vector<std::int32_t>& lengths);

// Fills in scale. Throws std::invalid_argument, naming the field, where one is out of range, or where packed sequences do not
// fit into one batch entry; or where a mask of dropout would be larger than 1 GB. Within the ranges no product of extents
// overflows a std::int64_t, not even in bytes, no sum of two extents an int, and scale · log2(e) is an fp32 number. Throws
// where a bias, sinks or lengths have another shape than the problem asks for, or go with packed sequences or a sparse mask.
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
