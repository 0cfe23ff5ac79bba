// The truth: attention and a whole multi-head layer, in double precision and as plainly as they can be written (gradients are
// in backward.h). Beside it the baseline: what an honest implementation gets in the kernel's own dtype. A kernel is judged by
// both.
//
// Every tensor is dense and in C order; the shape stands behind each parameter. A span of another length throws
// std::invalid_argument.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/reference/round.h"

namespace reference {

struct AttentionSpec {
  int batch = 1;
  int heads = 1;     // query heads
  int kv_heads = 1;  // divides heads; query head h reads key/value head h / (heads / kv_heads)
  int seq_q = 1;
  int seq_k = 1;
  int dim = 1;          // of one head
  bool causal = false;  // query i sees keys j ≤ i + seq_k − seq_q (aligned bottom-right)
  int window = 0;       // N > 0: key j is seen only if |i + seq_k − seq_q − j| < N; 0: no window
  double scale = 1.0;   // factor on Q Kᵀ, usually 1/√dim
  // Packed sequences: sequence s has the queries and keys cu_seqlens[s] … cu_seqlens[s + 1] − 1, and a query sees only those of
  // its own. Empty: none.
  std::vector<std::int32_t> cu_seqlens = {};
  // Dropout: P of a pair is left out with probability dropout / 256, from 0 to 255; dropout.h says which pairs.
  int dropout = 0;
  std::uint64_t dropout_seed = 0;
  // A mask beside these: does a query see a key, given its batch entry and its head? None: it does.
  std::function<bool(int batch, int head, int query, int key)> sees = {};
  // What becomes of a scaled score s, in this order: C tanh(s / C) with C = softcap > 0 (Gemma Team 2024, section 2); s + bias;
  // s − slope · |own key − key| with ALiBi (Press et al. 2022): slope() says which.
  double softcap = 0, alibi = 0;                                             // 0: none
  std::function<double(int batch, int head, int query, int key)> bias = {};  // −∞ hides the key
  // [heads]: a logit more in each row's softmax, without a value (Xiao et al. 2024). Empty: none.
  std::vector<float> sinks = {};
  // The keys of a batch entry are its first lengths[batch], in place of seq_k, and its last query lies beside the last of them.
  std::vector<std::int32_t> lengths = {};  // empty: all

  int keys_of(int batch_entry) const { return lengths.empty() ? seq_k : lengths[batch_entry]; }
  bool changes_scores() const { return softcap > 0 || alibi > 0 || bias; }
};

// ALiBi's slope of a head of n: where n is a power of two, 2^(−alibi · (head + 1) / n). Else the first p heads, p the largest
// power of two up to n, have the slopes of p heads; the others have every second one of 2 p heads.
double slope(const AttentionSpec& spec, int head);

struct Row;

// The keys that a query sees: [begin, end), less those that spec.sees or a bias of −∞ hides. Without a row: where all entries
// have as many keys.
struct KeyRange {
  int begin = 0;
  int end = 0;
  bool empty() const { return begin >= end; }
  int count() const { return empty() ? 0 : end - begin; }
};
KeyRange visible_keys(const AttentionSpec& spec, int query);
KeyRange visible_keys(const AttentionSpec& spec, const Row& row);
KeyRange sequence_of(const AttentionSpec& spec, int token);  // that a packed token is in; all keys where none are packed

// One row of O: what is computed for one query.
struct Row {
  int batch = 0;
  int head = 0;
  int query = 0;
  bool operator==(const Row&) const = default;
};
std::string to_string(const Row& row);  // "batch 0, head 3, query 117"

// The index of a row among all rows of the tensor: its place in all_rows() and in a dense [batch, heads, seq_q] array.
std::int64_t flat_index(const AttentionSpec& spec, const Row& row);

std::vector<Row> all_rows(const AttentionSpec& spec);  // in C order

// The keys that a row sees, one by one, in order.
std::vector<int> seen_keys(const AttentionSpec& spec, const Row& row);
bool sees_nothing(const AttentionSpec& spec, const Row& row);  // there is no such key

// For problems whose whole truth would take minutes: per_head rows of every head (at least 64; all where there are no more),
// in order. sample.h says which; always among them the first rows that see a key. Equal seeds give equal rows.
std::vector<Row> sample_rows(const AttentionSpec& spec, int per_head = 64, std::uint64_t seed = 1);

// 1 for each row that sees a NaN or an infinity: in its query, its sink, or in a key, value or bias visible to it. A row
// without keys sees its sink alone. q [batch, heads, seq_q, dim], k and v [batch, kv_heads, seq_k, dim].
std::vector<std::uint8_t> sees_non_finite(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                                          std::span<const float> k, std::span<const float> v);

// 1 for each row one of whose scores may overflow in fp32, so that honest implementations differ: Σ |q_d k_d| over what is
// finite, times |scale| · log2 e where that is above 1, reaches FLT_MAX for a visible key (or the factor alone does). The same
// where a bias or ALiBi makes one so large, or all of a row's so small.
std::vector<std::uint8_t> scores_may_overflow(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                                              std::span<const float> k);

struct Forward {
  std::vector<double> o;    // [rows, dim]
  std::vector<double> lse;  // [rows], natural logarithm
};

// O = softmax(scale · Q Kᵀ) V over the visible keys (Vaswani et al. 2017, equation 1) and LSE = log Σ exp(scores)
// (FlashAttention-2, section 3.1.1: L), in double. A row without keys gives O = 0 and LSE = −∞. Masked keys are never read,
// so a NaN in the input touches only the rows that see it. A score of −∞ adds nothing to the maximum, the sum and LSE, but its
// row of V still counts (0 · NaN is NaN, and 0 · ∞ is taken for ∞): scores of −∞ alone give O = 0 and LSE = −∞. +∞ or NaN
// among the scores makes O and LSE NaN. A sink counts as a score without a row of V: where there is no other one, O = 0 and LSE
// is the sink. A finite score has a probability above 0, however small. Dropout acts on the
// probabilities, not on LSE: a pair that is left out counts as P = 0.
// q [batch, heads, seq_q, dim], k and v [batch, kv_heads, seq_k, dim].
Forward forward(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q, std::span<const float> k,
                std::span<const float> v);
Forward forward(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const double> q, std::span<const double> k,
                std::span<const double> v);

// O [rows, dim] as an honest implementation in the kernel's dtype gets it, from inputs that are already rounded: scores summed
// in fp32 in the order of dim and scaled in fp32; exp in fp32, the maximum subtracted; P (normalised) rounded to the dtype;
// P·V summed in fp32 in the order of the keys, and multiplied by the factor of dropout; O rounded to the dtype. With keep_fp32
// nothing is rounded further.
std::vector<float> baseline(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                            std::span<const float> k, std::span<const float> v, Round round = keep_fp32);

// What rounding in fp32 can do to any honest implementation, whatever the order of its sums. The baseline shows the error of
// one order, and in some rows its roundings happen to cancel.
struct Rounding {
  // [rows, dim], of the sum P·V. The size of a sum is the larger of |O| and the root of Σ P_j² V_j²: what it would be if its
  // terms had random signs. u = 2⁻²⁴; a sum of n terms errs by a random walk of n steps, √keys · u · Σ P_j |V_j|. A term with
  // P_j < 2u may be too small to move the sum, and is lost: at most u · Σ P |V| of it. Below the smallest normal number P_j may
  // be 0 altogether, as ex2.approx.ftz makes it; that shows where dropout leaves out all larger ones. Such rows also show that
  // exp(score − maximum) is rounded to a multiple of the dtype's smallest number: a random walk of such steps.
  std::vector<double> size;
  std::vector<double> sum;
  std::vector<std::uint8_t> may_overflow;  // Σ |V_j| · 2⁸ ≥ FLT_MAX: P may be kept undivided, and then goes up to 2⁸ in step 05
  // [rows]: how far LSE moves where every score is off by as much as ScoreRounding allows, and six roundings of LSE itself,
  // which its way to base 2 and back may add up to.
  std::vector<double> lse;
};

// truth is forward() of the same rows; smallest: the smallest number above 0 of the dtype that P is rounded to. Rows without
// keys give 0, as do rows whose LSE is NaN or −∞.
Rounding fp32_rounding(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                       std::span<const float> k, std::span<const float> v, const Forward& truth, double smallest = 0x1p-149);

// What rounding of its scores can make of a row's O. Score j is off by at most 2 δ_j, δ_j = ½ √(dim + 2) · u · scale · ‖Q‖
// ‖K_j‖: the random walk of dim additions and of two multiplications, by the scale and by log2 e. Where δ is 1 and more, honest
// implementations disagree about which key wins, and O may be far from the truth; but it remains a mean of V's rows, weighted
// by exp(score ± 2 δ_j), and that is all it may be.
class ScoreRounding {
 public:
  // As in forward(); the tensors must outlive this.
  ScoreRounding(const AttentionSpec& spec, std::span<const float> q, std::span<const float> k, std::span<const float> v);

  // Of one row.
  struct Outcomes {
    // The largest direction · (O′ − O) among all O′ that such scores give; direction [dim].
    double reach(std::span<const double> direction) const;

    struct Key {
      double low, high;  // its weight, if its score is too small by 2 δ, or too large
      double kept;       // what dropout multiplies V by
      const float* v;    // [dim]
    };
    std::vector<Key> keys;  // those with a score above −∞, and a sink, as a key that is not kept
    std::vector<double> o;  // [dim]
  };
  Outcomes outcomes(const Row& row, std::span<const double> o) const;  // o [dim]: the row of O in double

 private:
  AttentionSpec spec_;
  std::span<const float> q_, k_, v_;
  std::vector<double> key_norms_;
};

// y[row][o] = Σ_i x[row][i] · weight[o][i] + bias[o]: the weights lie [out, in] as PyTorch stores them, nothing is transposed.
struct LinearShape {
  int rows = 1;
  int in = 1;
  int out = 1;
};

// x [rows, in], weight [out, in], bias [out] → y [rows, out]: in double, and in fp32 with each sum in the order of `in`.
std::vector<double> linear(const LinearShape& shape, std::span<const float> x, std::span<const float> weight,
                           std::span<const float> bias);
std::vector<float> linear_baseline(const LinearShape& shape, std::span<const float> x, std::span<const float> weight,
                                   std::span<const float> bias);

// Multi-head self-attention with its projections (Vaswani et al. 2017, section 3.2.2).
struct LayerShape {
  int batch = 1;
  int seq = 1;
  int heads = 1;
  int width = 1;  // E, a multiple of heads; one head has E / heads dimensions and scale 1/√(E / heads)
  bool causal = false;
};

// As PyTorch's MultiheadAttention stores them.
struct LayerWeights {
  std::span<const float> in_proj_weight;   // [3 · width, width]: those of Q, K and V, stacked
  std::span<const float> in_proj_bias;     // [3 · width]
  std::span<const float> out_proj_weight;  // [width, width]
  std::span<const float> out_proj_bias;    // [width]
};

template <class Real>
struct LayerResult {
  std::vector<Real> y;    // [batch, seq, width]
  std::vector<Real> o;    // [batch, heads, seq, width / heads], before the output projection
  std::vector<Real> lse;  // [batch, heads, seq]
};

// x [batch, seq, width]. layer() is in double throughout; layer_baseline() in fp32: every intermediate is a float, every sum
// runs in order. Throws std::invalid_argument where heads does not divide width.
LayerResult<double> layer(const LayerShape& shape, std::span<const float> x, const LayerWeights& weights);
LayerResult<float> layer_baseline(const LayerShape& shape, std::span<const float> x, const LayerWeights& weights);

}  // namespace reference
