#include "common/run/family/backward_truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "common/run/family/baseline_rounding.h"

namespace run {
namespace {

using check::RowRule;
using problem::Dtype;
using problem::Tensor;

// In problem::Backward::flops(). Truth, baseline and rounding cost about ten times as many, at some 2 GFLOP/s a core.
constexpr double most_flops_for_all_rows = 1e9;

reference::Format format_of(Dtype dtype) {
  const double largest = dtype == Dtype::fp16 ? 65504 : dtype == Dtype::bf16 ? 0x1.fep127 : 0x1.fffffep127;
  return {check::ulp(dtype, 1) / 2, check::ulp(dtype, 0), largest};
}

void require_shape(const Tensor& tensor, const std::vector<std::int64_t>& shape, const char* name) {
  if (tensor.shape == shape && std::ssize(tensor.values) == Tensor::count(shape)) return;
  throw std::invalid_argument(std::string("backward: ") + name + " is " + problem::to_string(tensor.shape) + ", not " +
                              problem::to_string(shape));
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

bool all_nan(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
}

// A baseline that overflowed where the truth did not tells nothing of what is allowed: such an element is held to the floor.
void keep_finite(std::vector<float>& baseline, const std::vector<double>& truth) {
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (std::isfinite(truth[i]) && !std::isfinite(baseline[i])) baseline[i] = static_cast<float>(truth[i]);
  }
}

double largest_norm(const Tensor& tensor) {
  double largest = 0;
  const std::int64_t dim = tensor.shape.back();
  for (auto row = tensor.values.begin(); row != tensor.values.end(); row += dim) {
    double squares = 0;
    for (auto x = row; x != row + dim; ++x) squares += static_cast<double>(*x) * *x;
    if (std::isfinite(squares)) largest = std::max(largest, std::sqrt(squares));
  }
  return largest;
}

double largest_finite(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : 0);
  return largest;
}

// A flag for each query [batch, heads, seq_q] as the keys see it: 1 for each key that such a query sees.
std::vector<std::uint8_t> seen_by(const reference::AttentionSpec& spec, const std::vector<std::uint8_t>& queries) {
  std::vector<std::int64_t> before(queries.size() + 1, 0);
  for (std::size_t i = 0; i < queries.size(); ++i) before[i + 1] = before[i] + queries[i];
  const int group = spec.heads / spec.kv_heads;
  std::vector<std::uint8_t> keys;
  for (int batch = 0; batch < spec.batch; ++batch) {
    for (int kv_head = 0; kv_head < spec.kv_heads; ++kv_head) {
      for (int key = 0; key < spec.seq_k; ++key) {
        const reference::QueryRange range = reference::queries_seeing(spec, key);
        bool seen = false;
        for (int head = kv_head * group; head < (kv_head + 1) * group && !range.empty(); ++head) {
          const std::int64_t first = reference::flat_index(spec, reference::Row{batch, head, 0});
          if (before[first + range.end] == before[first + range.begin]) continue;
          const auto seeing = reference::seeing_queries(spec, {batch, kv_head, key}, head);
          seen |= std::any_of(seeing.begin(), seeing.end(), [&](int query) { return queries[first + query] != 0; });
        }
        keys.push_back(seen);
      }
    }
  }
  return keys;
}

struct Tensors {
  const char* name;
  std::span<const float> values;
  const std::vector<double>& truth;
  const std::vector<float>& baseline;
  const reference::SumRounding& rounding;
};

// Takes out of a row [dim] as much of the direction as brings it nearest to the truth, between least and most times. What was
// taken out has been rounded, too: sizes grow to it. Elements that are not finite stay what they are, NaN patterns among them.
void remove_along(std::span<float> row, const double* truth, const double* direction, double least, double most, Dtype dtype,
                  const double* rounding, double* sizes) {
  const auto compared = [&](std::size_t d) { return direction[d] != 0 && std::isfinite(row[d]) && std::isfinite(truth[d]); };
  double times = std::max(std::abs(least), std::abs(most));
  // Each element counts in units of what it may be off by, which depends on what is taken out: three rounds.
  for (int round = 0; round < 3; ++round) {
    double along = 0, squares = 0;
    for (std::size_t d = 0; d < row.size(); ++d) {
      if (!compared(d)) continue;
      const double unit = std::max(check::ulp(dtype, sizes[d] + std::abs(times * direction[d])), rounding[d]);
      along += (direction[d] / unit) * ((row[d] - truth[d]) / unit);
      squares += (direction[d] / unit) * (direction[d] / unit);
    }
    if (!(squares > 0) || !std::isfinite(along / squares)) return;
    times = std::clamp(along / squares, least, most);
  }
  for (std::size_t d = 0; d < row.size(); ++d) {
    if (!compared(d)) continue;
    row[d] = static_cast<float>(row[d] - times * direction[d]);
    sizes[d] = std::max(sizes[d], std::abs(times * direction[d]));
  }
}

}  // namespace

BackwardTruth::BackwardTruth(const problem::Backward& shape, problem::BackwardInputs in)
    : shape_(problem::resolve(shape)), spec_(spec_of(shape_)), in_(std::move(in)) {
  const std::vector<std::int64_t> q_shape = {spec_.batch, spec_.heads, spec_.seq_q, spec_.dim};
  const std::vector<std::int64_t> kv_shape = {spec_.batch, spec_.kv_heads, spec_.seq_k, spec_.dim};
  require_shape(in_.q, q_shape, "Q");
  require_shape(in_.k, kv_shape, "K");
  require_shape(in_.v, kv_shape, "V");
  require_shape(in_.d_o, q_shape, "dO");
  require_shape(in_.o, q_shape, "O");
  require_shape(in_.lse, {spec_.batch, spec_.heads, spec_.seq_q}, "LSE");
  forward_ = AttentionTruth(shape_, {in_.q, in_.k, in_.v}).judge(in_.o, in_.lse);

  const bool all = shape_.flops() <= most_flops_for_all_rows;
  rows_ = all ? reference::all_backward_rows(spec_) : reference::sample_backward_rows(spec_);
  const std::span<const float> q = in_.q.values, k = in_.k.values, v = in_.v.values, d_o = in_.d_o.values;
  truth_ = reference::backward(spec_, rows_, q, k, v, d_o);
  baseline_ =
      reference::backward_baseline(spec_, rows_, q, k, v, d_o, in_.o.values, in_.lse.values, round_to_dtype(shape_.dtype));
  keep_finite(baseline_.dq, truth_.dq);
  keep_finite(baseline_.dk, truth_.dk);
  keep_finite(baseline_.dv, truth_.dv);
  rounding_ =
      reference::backward_rounding(spec_, rows_, q, k, v, d_o, in_.o.values, in_.lse.values, truth_, format_of(shape_.dtype));
  for (const reference::Row& row : rows_.queries) queries_.rows.push_back(reference::flat_index(spec_, row));
  for (const reference::KeyRow& row : rows_.keys) keys_.rows.push_back(reference::flat_index(spec_, row));
  make_rules();
  if (all) return;

  // Of rows without a truth: finite unless they depend on what is not, or numbers are so large that honest sums may overflow.
  const double limit = format_of(shape_.dtype).largest;
  const double factor = 256.0 / (256 - spec_.dropout);
  const double largest_ds = 2 * factor * largest_norm(in_.d_o) * largest_norm(in_.v) * std::max(1.0, std::abs(spec_.scale));
  const double largest = std::max({largest_finite(truth_.dq), largest_finite(truth_.dk), largest_finite(truth_.dv)});
  const double scores = std::abs(spec_.scale) * largest_norm(in_.q) * largest_norm(in_.k);
  const bool large = largest_ds >= limit || largest * 0x1p7 >= limit || largest_norm(in_.o) >= limit ||
                     scores >= 1e6;  // rounded by so much that exp(S − LSE) may overflow
  const auto rows = reference::all_rows(spec_);
  const auto overflow = reference::scores_may_overflow(spec_, rows, q, k);
  auto odd = reference::sees_non_finite(spec_, rows, q, k, v);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    odd[r] |= overflow[r] || !all_finite(d_o.subspan(r * spec_.dim, spec_.dim));
    const bool empty = reference::sees_nothing(spec_, rows[r]);
    queries_.all_rules.push_back(empty ? RowRule::empty : large || odd[r] ? RowRule::written : RowRule::compare);
  }
  for (const std::uint8_t touched : seen_by(spec_, odd)) {
    const int key = static_cast<int>(std::ssize(keys_.all_rules) % spec_.seq_k);
    const std::int64_t head = std::ssize(keys_.all_rules) / spec_.seq_k;
    const bool empty =
        reference::is_unseen(spec_, {static_cast<int>(head / spec_.kv_heads), static_cast<int>(head % spec_.kv_heads), key});
    keys_.all_rules.push_back(empty ? RowRule::empty : large || touched ? RowRule::written : RowRule::compare);
  }
}

// What is asked of the rows that are compared.
void BackwardTruth::make_rules() {
  const std::size_t dim = spec_.dim;
  const auto all_rows = reference::all_rows(spec_);
  const auto overflow = reference::scores_may_overflow(spec_, all_rows, in_.q.values, in_.k.values);
  for (std::size_t r = 0; r < rows_.queries.size(); ++r) {
    const bool exempt = rounding_.lost_queries[r] || overflow[queries_.rows[r]];
    // A row with a NaN among its scores has one whatever else overflows.
    const bool defined = !all_nan(std::span(truth_.dq).subspan(r * dim, dim));
    const bool empty = reference::sees_nothing(spec_, rows_.queries[r]);
    queries_.rules.push_back(empty ? RowRule::empty : exempt && defined ? RowRule::written : RowRule::compare);
  }
  const auto overflow_seen = seen_by(spec_, overflow);
  for (std::size_t r = 0; r < rows_.keys.size(); ++r) {
    const bool exempt = rounding_.lost_keys[r] || overflow_seen[keys_.rows[r]];
    const bool defined = !all_nan(std::span(truth_.dv).subspan(r * dim, dim));
    const bool empty = reference::is_unseen(spec_, rows_.keys[r]);
    keys_.rules.push_back(empty ? RowRule::empty : exempt && defined ? RowRule::written : RowRule::compare);
  }
}

std::vector<check::TensorVerdict> BackwardTruth::judge(const Tensor& dq, const Tensor& dk, const Tensor& dv) const {
  const std::int64_t dim = spec_.dim;
  // What the rounding of O, of LSE and of Σ dS = 0 explains is one direction of a row each, and no allowance for its elements:
  // it is taken out before they are compared, of the baseline, too.
  struct Rest {
    std::vector<float> values;
    std::vector<double> sizes;
  };
  const auto unexplained = [dim, dtype = shape_.dtype](std::span<const float> values, const Tensors& tensor,
                                                       const auto& remove_more) {
    Rest rest{{values.begin(), values.end()}, tensor.rounding.size};
    for (std::int64_t row = 0; row < std::ssize(values) / dim; ++row) {
      const std::int64_t at = row * dim;
      const std::span<float> elements = std::span(rest.values).subspan(at, dim);
      // Between what the exact O and LSE give and what those as stored give, everything is honest.
      remove_along(elements, &tensor.truth[at], &tensor.rounding.stored[at], 0, 1, dtype, &tensor.rounding.sum[at],
                   &rest.sizes[at]);
      remove_more(row, elements, &rest.sizes[at]);
    }
    return rest;
  };
  const auto judge_tensor = [&](const Tensors& tensor, const check::Sample& sample, const auto& row_name,
                                const auto& remove_more) {
    const Rest baseline = unexplained(tensor.baseline, tensor, remove_more);
    check::Output output{.name = tensor.name, .dtype = shape_.dtype, .cols = dim, .values = tensor.values};
    output.row_name = row_name;
    return check::judge_sample(output, sample, [&](const check::Output& rows) {
      const Rest rest = unexplained(rows.values, tensor, remove_more);
      check::Output compared = rows;
      compared.values = rest.values;
      check::Expected expected{tensor.truth, baseline.values, rest.sizes, tensor.rounding.sum, tensor.rounding.may_overflow};
      expected.any_non_finite = true;
      expected.factor = check::gradient_factor;
      return check::judge(compared, expected);
    });
  };
  const auto query_name = [&](std::int64_t row) { return to_string(reference::all_rows(spec_)[row]); };
  const auto key_name = [&](std::int64_t row) {
    const std::int64_t head = row / spec_.seq_k;
    return to_string(reference::KeyRow{static_cast<int>(head / spec_.kv_heads), static_cast<int>(head % spec_.kv_heads),
                                       static_cast<int>(row % spec_.seq_k)});
  };
  const auto mean_key = [&](std::int64_t row, std::span<float> elements, double* sizes) {
    const std::int64_t at = row * dim;
    remove_along(elements, &truth_.dq[at], &rounding_.mean_key[at], -rounding_.along[row], rounding_.along[row], shape_.dtype,
                 &rounding_.dq.sum[at], sizes);
  };
  const auto nothing = [](std::int64_t, std::span<float>, double*) {};
  std::vector<check::TensorVerdict> verdicts = {
      judge_tensor({"dQ", dq.values, truth_.dq, baseline_.dq, rounding_.dq}, queries_, query_name, mean_key),
      judge_tensor({"dK", dk.values, truth_.dk, baseline_.dk, rounding_.dk}, keys_, key_name, nothing),
      judge_tensor({"dV", dv.values, truth_.dv, baseline_.dv, rounding_.dv}, keys_, key_name, nothing)};
  verdicts.insert(verdicts.end(), forward_.begin(), forward_.end());
  return verdicts;
}

}  // namespace run
