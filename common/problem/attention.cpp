#include "common/problem/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "common/device/visibility.h"
#include "common/problem/attention_options.h"
#include "common/problem/require.h"

namespace problem {
namespace {

// Σ clamp(t, 0, limit) over t < end.
std::int64_t clamped_sum(std::int64_t end, std::int64_t limit) {
  if (end <= 0) return 0;
  const std::int64_t rising = std::min(end, limit);
  return rising * (rising - 1) / 2 + (end - rising) * limit;
}

void require_sequences(const Attention& shape) {
  const auto& sums = shape.cu_seqlens;
  require_sums(sums);
  require(shape.batch == 1,
          "batch is " + std::to_string(shape.batch) + "; packed sequences (cu-seqlens) lie in one batch entry");
  require(shape.seq_q == sums.back() && shape.seq_k == sums.back(),
          "seq-q is " + std::to_string(shape.seq_q) + ", seq-k is " + std::to_string(shape.seq_k) +
              "; with packed sequences both are the last of cu-seqlens, " + std::to_string(sums.back()));
}

// Of the arrays beside Q, K and V that change scores, or say how long a cache is.
void require_score_arrays(const Attention& shape) {
  if (shape.bias) {
    const std::vector<std::int64_t> all = {shape.batch, shape.heads, shape.seq_q, shape.seq_k}, &given = shape.bias->shape;
    bool fits = given.size() == 4 && given[3] == all[3];
    for (std::size_t n = 0; fits && n < 3; ++n) fits = given[n] == all[n] || given[n] == 1;
    require(fits, "bias has the shape " + to_string(given) + "; it must have " + to_string(all) +
                      ", where each but the last may be 1");
  }
  require(!shape.sinks || shape.sinks->shape == std::vector<std::int64_t>{shape.heads},
          "sinks has the shape " + (shape.sinks ? to_string(shape.sinks->shape) : "") + "; heads is " +
              std::to_string(shape.heads));
  if (shape.lengths.empty()) return;
  require_lengths(shape, shape.lengths);
  require(!shape.is_packed(), "lengths contradict packed sequences (cu-seqlens), which say how long they are");
  require(!shape.sparse, "lengths contradict a sparse mask, whose blocks count keys from the end of seq-k");
}

double elements(int batch, int heads, int rows, int columns) { return static_cast<double>(batch) * heads * rows * columns; }

}  // namespace

void require_sums(const std::vector<std::int32_t>& sums) {
  const auto refuse = [](const std::string& what) {
    require(false, "cu-seqlens " + what + "; it holds the sums of the sequences' lengths: 0, the first length, …, all tokens");
  };
  if (!sums.empty() && sums.front() != 0) refuse("begins with " + std::to_string(sums.front()) + " and must begin with 0");
  if (sums.size() < 2) refuse(std::string("holds ") + (sums.empty() ? "no number" : "one number") + ", and so no sequence");
  const auto falls = std::adjacent_find(sums.begin(), sums.end(), std::greater<>());
  if (falls != sums.end()) refuse("falls from " + std::to_string(falls[0]) + " to " + std::to_string(falls[1]));
  if (sums.back() == 0) refuse("ends with 0, so that there is no token");
}

Attention::Sequence Attention::sequence_of(int token) const {
  if (!is_packed()) return {0, seq_k};
  const auto end = std::upper_bound(cu_seqlens.begin() + 1, cu_seqlens.end() - 1, token);
  return {*(end - 1), *end};
}

Attention Attention::entry(int batch_entry) const {
  Attention one = *this;
  one.batch = 1;
  if (!lengths.empty()) one.seq_k = lengths[batch_entry];
  one.lengths.clear();
  one.pages = nullptr;
  return one;
}

void require_lengths(const Attention& shape, const std::vector<std::int32_t>& lengths) {
  const std::int64_t count = std::ssize(lengths);
  require(count == shape.batch, "lengths holds " + std::to_string(count) + (count == 1 ? " number" : " numbers") +
                                    "; batch is " + std::to_string(shape.batch));
  for (const std::int32_t length : lengths) {
    require(length >= 0 && length <= shape.seq_k,
            "lengths holds " + std::to_string(length) + "; it must be from 0 to seq-k, " + std::to_string(shape.seq_k));
  }
}

int Attention::first_key(int i) const { return visibility::larger(visibility::first_key(*this, i), sequence_of(i).first); }
int Attention::last_key(int i) const { return visibility::smaller(visibility::end_key(*this, i), sequence_of(i).end); }

std::int64_t Attention::dense_pairs() const {
  if (is_packed()) {
    std::int64_t pairs = 0;
    Attention one = *this;
    one.cu_seqlens.clear();
    for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
      one.seq_q = one.seq_k = cu_seqlens[s + 1] - cu_seqlens[s];
      pairs += one.dense_pairs();
    }
    return pairs;
  }
  // Σ of i + diagonal over all queries i, each clamped to the keys that there are.
  const auto over_all_queries = [&](std::int64_t diagonal) {
    diagonal = std::clamp<std::int64_t>(diagonal, -seq_q, seq_k);
    return clamped_sum(diagonal + seq_q, seq_k) - clamped_sum(diagonal, seq_k);
  };
  const std::int64_t own = visibility::own_key(*this, 0);
  return over_all_queries(own - visibility::least_distance(*this) + 1) -
         over_all_queries(own - visibility::most_distance(*this));
}

double Attention::live_pairs() const {
  if (sparse) return problem::live_pairs(*sparse, *this);
  if (!lengths.empty()) {
    double pairs = 0;
    for (int b = 0; b < batch; ++b) pairs += entry(b).live_pairs();
    return pairs;
  }
  return static_cast<double>(dense_pairs()) * heads * batch;
}

double Attention::keys() const {
  if (lengths.empty()) return static_cast<double>(batch) * seq_k;
  return std::accumulate(lengths.begin(), lengths.end(), 0.0);
}

double Attention::flops() const { return 4.0 * dim * live_pairs(); }

double Attention::compulsory_bytes() const {
  const double q_and_o = 2 * elements(batch, heads, seq_q, dim);
  const double k_and_v = 2 * keys() * kv_heads * dim;
  return (q_and_o + k_and_v) * static_cast<double>(bytes(dtype)) + sizeof(float) * elements(batch, heads, seq_q, 1);
}

Attention resolve(Attention shape) {
  if (shape.is_packed()) require_sequences(shape);
  require_extent("batch", shape.batch);
  require_extent("heads", shape.heads);
  require_extent("kv-heads", shape.kv_heads);
  require_extent("seq-q", shape.seq_q);
  require_extent("seq-k", shape.seq_k);
  require_extent("dim", shape.dim);
  require(shape.heads % shape.kv_heads == 0, "heads is " + std::to_string(shape.heads) + ", kv-heads is " +
                                                 std::to_string(shape.kv_heads) + "; heads must be a multiple of kv-heads");
  if (!shape.scale) shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.dim)));
  require_ranges(shape);
  require(!shape.writes_mask || elements(shape.batch, shape.heads, shape.seq_q, shape.seq_k) <= 0x1p29,
          "the mask of dropout (mask.npy) would be larger than 1 GB");
  if (shape.sparse) require_mask(*shape.sparse, shape);
  require_score_arrays(shape);
  if (shape.pages) require_pages(*shape.pages, shape);
  require_countable({{"batch · heads · seq-q · seq-k", elements(shape.batch, shape.heads, shape.seq_q, shape.seq_k)},
                     {"batch · heads · seq-q · dim", elements(shape.batch, shape.heads, shape.seq_q, shape.dim)},
                     {"batch · kv-heads · seq-k · dim", elements(shape.batch, shape.kv_heads, shape.seq_k, shape.dim)}});
  return shape;
}

std::string to_string(const Attention& shape) {
  std::string text = "batch " + std::to_string(shape.batch) + ", heads " + std::to_string(shape.heads) + " over " +
                     std::to_string(shape.kv_heads) + ", " + std::to_string(shape.seq_q) + " × " + std::to_string(shape.seq_k) +
                     ", dim " + std::to_string(shape.dim);
  text += printed(visibility_options, shape);
  if (shape.is_packed()) text += ", " + std::to_string(shape.cu_seqlens.size() - 1) + " packed";
  if (shape.sparse) {
    const double dense = static_cast<double>(shape.dense_pairs()) * shape.heads * shape.batch;
    const int percent = dense > 0 ? static_cast<int>(std::lround(100 * shape.live_pairs() / dense)) : 0;
    text += ", blocks of " + std::to_string(shape.sparse->block_q) + " × " + std::to_string(shape.sparse->block_k) + " (" +
            std::to_string(percent) + " % live)";
  }
  if (shape.dropout > 0) {
    text += ", dropout " + std::to_string(shape.dropout) + "/256 (seed " + std::to_string(shape.dropout_seed) + ")";
  }
  text += printed(score_options, shape);
  if (shape.bias) text += ", bias " + to_string(shape.bias->shape);
  if (shape.sinks) text += ", sinks";
  if (!shape.lengths.empty()) {
    const auto [least, most] = std::minmax_element(shape.lengths.begin(), shape.lengths.end());
    text += ", lengths " + std::to_string(*least) + " … " + std::to_string(*most);
  }
  if (shape.pages) text += ", " + std::to_string(shape.pages->count) + " pages of " + std::to_string(shape.pages->size);
  return text + ", " + std::string(name(shape.dtype));
}

}  // namespace problem
