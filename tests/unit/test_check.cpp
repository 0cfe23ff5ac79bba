// The checker is tested with kernels: a small flash attention on the host, honest or with one fault of many. Honest ones must
// be accepted wherever they run, broken ones rejected wherever the fault changes the result.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "common/check/verdict.h"
#include "common/problem/attention.h"
#include "common/reference/attention.h"
#include "tests/catch.h"

using check::RowRule;
using check::TensorVerdict;
using problem::Dtype;
using problem::InputKind;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::array<Dtype, 3> dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

template <Dtype dtype>
float rounded(float x) {
  return problem::round_to(dtype, x);
}

reference::Round rounding_to(Dtype dtype) {
  if (dtype == Dtype::fp16) return rounded<Dtype::fp16>;
  if (dtype == Dtype::bf16) return rounded<Dtype::bf16>;
  return reference::keep_fp32;
}

// ---- problems ----

struct Problem {
  std::string text;
  problem::Attention shape;
  std::uint64_t seed = 1;
  Dtype dtype = Dtype::fp32;
  reference::AttentionSpec spec;
  std::vector<float> q, k, v;
  std::vector<reference::Row> rows;
  reference::Forward truth;
  std::vector<float> baseline;
  reference::Rounding rounding;
  std::shared_ptr<const reference::ScoreRounding> scores;
  std::vector<RowRule> rules;
};

std::vector<RowRule> rules_of(const Problem& problem) {
  const auto exempt = reference::scores_may_overflow(problem.spec, problem.rows, problem.q, problem.k);
  std::vector<RowRule> rules(problem.rows.size());
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const bool empty = reference::visible_keys(problem.spec, problem.rows[r].query).empty();
    rules[r] = empty ? RowRule::empty : exempt[r] ? RowRule::written : RowRule::compare;
  }
  return rules;
}

// Fills in what follows from shape and inputs.
Problem with_truth(Problem p) {
  p.rows = reference::all_rows(p.spec);
  p.truth = reference::forward(p.spec, p.rows, p.q, p.k, p.v);
  p.baseline = reference::baseline(p.spec, p.rows, p.q, p.k, p.v, rounding_to(p.dtype));
  p.rounding = reference::fp32_rounding(p.spec, p.rows, p.q, p.k, p.v, p.truth);
  p.scores = std::make_shared<reference::ScoreRounding>(p.spec, p.q, p.k, p.v);
  p.rules = rules_of(p);
  return p;
}

struct Inputs {
  std::uint64_t seed = 1;
  InputKind kind = InputKind::normal;
  float enlarge = 1;      // factor on Q: scores of N(0, 1) inputs reach about ±4 · enlarge
  bool negative = false;  // all scores between about −170 and −130
};

// Q near +c and K near −c in every dimension, where c² √dim = 150.
void make_negative(const problem::Attention& shape, problem::AttentionInputs& in) {
  const float c = std::sqrt(150.0f / std::sqrt(static_cast<float>(shape.dim)));
  for (float& x : in.q.values) x = problem::round_to(shape.dtype, c + 0.3f * x);
  for (float& x : in.k.values) x = problem::round_to(shape.dtype, -c + 0.3f * x);
}

Problem make_problem(const problem::Attention& unresolved, const Inputs& inputs = {}) {
  const problem::Attention shape = problem::resolve(unresolved);
  problem::AttentionInputs in = problem::make_inputs(shape, inputs.seed, inputs.kind);
  for (float& x : in.q.values) x = problem::round_to(shape.dtype, inputs.enlarge * x);
  if (inputs.negative) make_negative(shape, in);
  Problem p;
  p.text = problem::to_string(shape) + ", seed " + std::to_string(inputs.seed);
  p.shape = shape;
  p.seed = inputs.seed;
  p.dtype = shape.dtype;
  p.spec = {shape.batch, shape.heads,  shape.kv_heads, shape.seq_q, shape.seq_k,
            shape.dim,   shape.causal, shape.window,   *shape.scale};
  p.q = std::move(in.q.values);
  p.k = std::move(in.k.values);
  p.v = std::move(in.v.values);
  return with_truth(std::move(p));
}

// ---- the kernel ----

enum class Fault {
  none,
  nan_element,
  zeros,
  mean_of_v,
  rows_swapped,
  no_rescale,
  max_from_zero,
  no_max,
  last_tile_dropped,
  scale_off,
  exp2_for_exp,
  causal_one_more,
  causal_one_less,
  causal_top_left,
  wrong_kv_head,
  lse_in_log2,
  lse_without_scale,
  unwritten_tail,
  output_fragment_transposed,
  v_fragment_transposed,
  fp16_accumulation,
  late_element,
  head_copied,
  last_calls_output,
  rounded_to_bf16,
  a_key_of_100_left_out,
  padded_keys,
  window_one_more,
  first_batch_only,
  empty_rows_nan,
  empty_rows_mean,
  empty_lse_zero,
};

// What honest kernels do differently.
struct Choices {
  enum class Dot { in_order, reversed, four_sums, fused } dot = Dot::in_order;
  int tile = 32;
  bool last_tile_first = false;
  bool exp2 = false;  // with log2 e folded into the scale
};

struct Result {
  std::vector<float> o;    // [batch, heads, seq_q, dim]
  std::vector<float> lse;  // [batch, heads, seq_q]
};

float dot(Choices::Dot order, const float* a, const float* b, int dim) {
  float sums[4] = {};
  for (int i = 0; i < dim; ++i) {
    switch (order) {
      case Choices::Dot::in_order:
        sums[0] += a[i] * b[i];
        break;
      case Choices::Dot::reversed:
        sums[0] += a[dim - 1 - i] * b[dim - 1 - i];
        break;
      case Choices::Dot::four_sums:
        sums[i % 4] += a[i] * b[i];
        break;
      case Choices::Dot::fused:
        sums[0] = std::fma(a[i], b[i], sums[0]);
        break;
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

float dot_in_fp16(const float* a, const float* b, int dim) {
  float sum = 0;
  for (int i = 0; i < dim; ++i) sum = rounded<Dtype::fp16>(sum + a[i] * b[i]);
  return sum;
}

// Flash attention, one row at a time: tiles of keys, a running maximum, P unnormalised and rounded to the dtype, fp32 sums.
class Kernel {
 public:
  Kernel(const Problem& problem, const Choices& choices, Fault fault = Fault::none)
      : p_(problem), spec_(problem.spec), choices_(choices), fault_(fault), v_(problem.v) {
    unit_ = choices.exp2 ? std::log2(std::exp(1.0f)) : 1.0f;
    scale_ = static_cast<float>(spec_.scale) * unit_;
    if (fault == Fault::scale_off) scale_ *= std::sqrt(2.0f);
    if (fault == Fault::v_fragment_transposed) transpose_fragment(&v_[v_.size() - 8 * spec_.dim]);
  }

  Result run() {
    Result result{std::vector<float>(p_.q.size()), std::vector<float>(p_.rows.size())};
    {
      const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
      std::vector<std::jthread> threads;  // joined before the result is spoilt
      for (std::size_t core = 0; core < cores; ++core) {
        threads.emplace_back([this, &result, core, cores] {
          for (std::size_t r = core; r < p_.rows.size(); r += cores) {
            run_row(p_.rows[r], &result.o[r * spec_.dim], result.lse[r]);
          }
        });
      }
    }
    spoil(result);
    return result;
  }

 private:
  bool has(Fault fault) const { return fault_ == fault; }

  reference::KeyRange seen_keys(int query) const {
    reference::KeyRange keys = reference::visible_keys(spec_, query);
    const int padded = (spec_.seq_k + choices_.tile - 1) / choices_.tile * choices_.tile;
    if (has(Fault::padded_keys) && keys.end == spec_.seq_k) keys.end = padded;
    if (has(Fault::causal_one_more)) keys.end = std::min(keys.end + 1, spec_.seq_k);
    if (has(Fault::causal_one_less)) --keys.end;
    if (has(Fault::causal_top_left)) keys.end = std::min(query + 1, spec_.seq_k);
    if (has(Fault::window_one_more) && keys.begin > 0) --keys.begin;
    return keys;
  }

  std::int64_t first_key(const reference::Row& row) const {
    const int group = spec_.heads / spec_.kv_heads;
    const int kv_head = has(Fault::wrong_kv_head) ? row.head % spec_.kv_heads : row.head / group;
    const int batch = has(Fault::first_batch_only) ? 0 : row.batch;
    return (static_cast<std::int64_t>(batch) * spec_.kv_heads + kv_head) * spec_.seq_k;
  }

  float score(const float* q, std::int64_t first, int j) const {
    if (j >= spec_.seq_k) return 0;  // a zero-filled key that was not masked
    const float* k = &p_.k[(first + j) * spec_.dim];
    return scale_ * (has(Fault::fp16_accumulation) ? dot_in_fp16(q, k, spec_.dim) : dot(choices_.dot, q, k, spec_.dim));
  }

  float exponential(float x) const { return choices_.exp2 || has(Fault::exp2_for_exp) ? std::exp2(x) : std::exp(x); }

  void add_pv(float p, std::int64_t first, int j, std::vector<float>& o) const {
    if (j >= spec_.seq_k) return;
    const float* v = &v_[(first + j) * spec_.dim];
    if (has(Fault::fp16_accumulation)) {
      for (int d = 0; d < spec_.dim; ++d) o[d] = rounded<Dtype::fp16>(o[d] + p * v[d]);
    } else {
      for (int d = 0; d < spec_.dim; ++d) o[d] += p * v[d];
    }
  }

  // m, l and the unnormalised O of one row.
  struct Running {
    float max;
    float sum;
    std::vector<float> o;
    float left_out = 0;  // of the sum
  };

  void add_tile(Running& running, const reference::Row& row, int begin, int end) const {
    const float* q = &p_.q[reference::flat_index(spec_, row) * spec_.dim];
    const std::int64_t first = first_key(row);
    std::vector<float> s;
    float max = running.max;
    for (int j = begin; j < end; ++j) {
      s.push_back(score(q, first, j));
      if (!has(Fault::no_max)) max = std::max(max, s.back());
    }
    const float rescale = running.max == -infinity ? 0 : exponential(running.max - max);
    running.max = max;
    running.sum *= rescale;
    running.left_out *= rescale;
    if (!has(Fault::no_rescale)) {
      for (float& x : running.o) x *= rescale;
    }
    for (int j = begin; j < end; ++j) {
      const float p = exponential(s[j - begin] - max);
      running.sum += p;
      // The rest is renormalised in O, and LSE stays right.
      if (has(Fault::a_key_of_100_left_out) && (row.query * 31 + row.head * 17 + j) % 100 == 0) {
        running.left_out += p;
      } else {
        add_pv(problem::round_to(p_.dtype, p), first, j, running.o);
      }
    }
  }

  void run_row(const reference::Row& row, float* out, float& lse) const {
    const reference::KeyRange keys = seen_keys(row.query);
    const bool zero_start = has(Fault::max_from_zero) || has(Fault::no_max);
    Running running{zero_start ? 0 : -infinity, 0, std::vector<float>(spec_.dim, 0.0f)};

    int tiles = (std::max(spec_.seq_k, keys.end) + choices_.tile - 1) / choices_.tile;
    if (has(Fault::last_tile_dropped)) --tiles;
    for (int t = 0; t < tiles; ++t) {
      const int tile = (choices_.last_tile_first ? tiles - 1 - t : t) * choices_.tile;
      const int begin = std::max(tile, keys.begin), end = std::min(tile + choices_.tile, keys.end);
      if (begin < end) add_tile(running, row, begin, end);
    }
    const bool empty = running.max == -infinity;
    for (int d = 0; d < spec_.dim; ++d) {
      out[d] = empty ? 0 : problem::round_to(p_.dtype, running.o[d] / (running.sum - running.left_out));
    }
    lse = empty ? -infinity : log_sum_exp(running.max, running.sum);
  }

  float log_sum_exp(float max, float sum) const {
    const float natural = max / unit_ + std::log(sum);
    if (has(Fault::lse_in_log2)) return natural * std::log2(std::exp(1.0f));
    if (has(Fault::lse_without_scale)) return max / scale_ + std::log(sum);
    return natural;
  }

  // Faults of the epilogue: they spoil a finished result.
  void spoil(Result& result) {
    const std::size_t rows = p_.rows.size();
    const auto row = [&](std::size_t r) { return result.o.begin() + static_cast<std::ptrdiff_t>(r * spec_.dim); };
    if (has(Fault::nan_element)) result.o[result.o.size() / 2] = quiet_nan;
    if (has(Fault::zeros)) std::fill(result.o.begin(), result.o.end(), 0.0f);
    if (has(Fault::rows_swapped)) std::swap_ranges(row(rows - 2), row(rows - 1), row(rows - 1));
    if (has(Fault::late_element)) {
      float& largest = *std::max_element(row(rows - 1), result.o.end(), smaller);
      largest = problem::round_to(p_.dtype, 1.05f * largest);
    }
    if (has(Fault::head_copied)) std::copy_n(row(0), row(spec_.seq_q) - row(0), row(rows - spec_.seq_q));
    if (has(Fault::last_calls_output)) result = Kernel(make_problem(p_.shape, {.seed = p_.seed + 1}), choices_).run();
    if (has(Fault::rounded_to_bf16)) {
      for (float& x : result.o) x = rounded<Dtype::bf16>(x);
    }
    if (has(Fault::output_fragment_transposed)) transpose_fragment(&*row(rows - 8));
    for (std::size_t r = 0; r < rows; ++r) spoil_row(p_.rows[r], &*row(r), result.lse[r]);
  }

  static bool smaller(float a, float b) { return std::abs(a) < std::abs(b); }

  void spoil_row(const reference::Row& row, float* o, float& lse) const {
    const bool empty = reference::visible_keys(spec_, row.query).empty();
    if (has(Fault::empty_rows_nan) && empty) std::fill_n(o, spec_.dim, quiet_nan);
    if (has(Fault::empty_lse_zero) && empty) lse = 0;
    if (has(Fault::mean_of_v) || (has(Fault::empty_rows_mean) && empty)) mean_of_v(row, o);
    if (has(Fault::unwritten_tail) && row.query >= spec_.seq_q / 16 * 16) {
      std::fill_n(o, spec_.dim, check::poison_value(p_.dtype));
    }
  }

  void mean_of_v(const reference::Row& row, float* o) const {
    for (int d = 0; d < spec_.dim; ++d) {
      float sum = 0;
      for (int j = 0; j < spec_.seq_k; ++j) sum += v_[(first_key(row) + j) * spec_.dim + d];
      o[d] = problem::round_to(p_.dtype, sum / static_cast<float>(spec_.seq_k));
    }
  }

  // 8 rows × 8 columns, in place.
  void transpose_fragment(float* first) const {
    for (int r = 0; r < 8; ++r) {
      for (int c = 0; c < r; ++c) std::swap(first[r * spec_.dim + c], first[c * spec_.dim + r]);
    }
  }

  const Problem& p_;
  const reference::AttentionSpec& spec_;
  Choices choices_;
  Fault fault_;
  std::vector<float> v_;
  float unit_ = 1;   // log2 e where exp2 is used
  float scale_ = 1;  // of scores, in that unit
};

// ---- the verdict on it ----

check::Output output_of(const Problem& problem, const char* name, Dtype dtype, std::int64_t cols,
                        const std::vector<float>& values) {
  check::Output output{name, dtype, cols, values, problem.rules};
  output.row_name = [&problem](std::int64_t row) { return reference::to_string(problem.rows[row]); };
  return output;
}

TensorVerdict judge_o(const Problem& problem, const std::vector<float>& o, bool with_rounding = true) {
  check::Expected expected{problem.truth.o, problem.baseline};
  expected.nan_for_infinity = true;
  if (with_rounding) {
    const std::int64_t dim = problem.spec.dim;
    expected.size = problem.rounding.size;
    expected.rounding = problem.rounding.sum;
    expected.may_overflow = problem.rounding.may_overflow;
    struct Kept {  // from one call to the next: a row's elements come one after the other
      std::int64_t row = -1;
      reference::ScoreRounding::Outcomes outcomes;
    };
    expected.reach = [&problem, dim, kept = Kept{}](std::int64_t row, std::span<const double> direction) mutable {
      const auto truth = std::span(problem.truth.o).subspan(row * dim, dim);
      if (kept.row != row) kept = {row, problem.scores->outcomes(problem.rows[row], truth)};
      return kept.outcomes.reach(direction);
    };
  }
  return check::judge(output_of(problem, "O", problem.dtype, problem.spec.dim, o), expected);
}

TensorVerdict judge_lse(const Problem& problem, const std::vector<float>& lse, bool with_rounding = true) {
  check::Output output = output_of(problem, "LSE", Dtype::fp32, 1, lse);
  output.empty_value = -infinity;
  const auto rounding = with_rounding ? std::span<const double>(problem.rounding.lse) : std::span<const double>();
  return check::judge_lse(output, problem.truth.lse, problem.dtype, rounding);
}

check::Verdict judge(const Problem& problem, const Result& result) {
  return {{judge_o(problem, result.o), judge_lse(problem, result.lse)}, true, std::nullopt};
}

// ---- the faults ----

using Shape = problem::Attention;

Shape shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, bool causal = false, int window = 0) {
  return {batch, heads, kv_heads, seq_q, seq_k, dim, causal, window};
}

const std::vector<Shape> fault_shapes = {
    shape(1, 2, 2, 64, 64, 64, true),      shape(2, 3, 3, 97, 97, 32),           shape(1, 4, 2, 113, 203, 64, true),
    shape(1, 14, 2, 40, 72, 64, true),     shape(2, 4, 1, 61, 130, 128),         shape(1, 2, 1, 203, 113, 64, true),
    shape(1, 6, 3, 107, 105, 32, true),    shape(3, 2, 1, 75, 75, 40),           shape(1, 2, 2, 96, 96, 64, true, 33),
    shape(1, 1, 1, 80, 80, 32, false, 20), shape(2, 4, 2, 90, 80, 40, true, 50), shape(1, 2, 2, 64, 100, 96, false, 7),
    shape(1, 4, 4, 20, 9, 64, true),
};

struct FaultCase {
  Fault fault;
  const char* text;
  enum Tensor { o, lse } rejected;                          // the tensor that must be rejected
  std::function<bool(const Shape&, Dtype)> changes_result;  // at which shapes the fault shows
  Inputs inputs = {};
};

bool anywhere(const Shape&, Dtype) { return true; }
bool causal(const Shape& s, Dtype) { return s.causal && s.window == 0; }
bool windowed(const Shape& s, Dtype) { return s.window > 0; }
bool several_tiles(const Shape& s, Dtype) { return s.seq_k > 32 && s.window == 0; }
bool has_empty_rows(const Shape& s, Dtype) { return s.causal && s.seq_q > s.seq_k; }
bool has_no_empty_rows(const Shape& s, Dtype dtype) { return !has_empty_rows(s, dtype); }

const std::vector<FaultCase> fault_cases = {
    {Fault::nan_element, "NaN", FaultCase::o, anywhere},
    {Fault::zeros, "zeros", FaultCase::o, anywhere},
    {Fault::mean_of_v, "mean of V everywhere", FaultCase::o, anywhere},
    {Fault::rows_swapped, "two rows swapped", FaultCase::o, anywhere},
    {Fault::no_rescale, "no rescale of O when the maximum moves", FaultCase::o, several_tiles},
    {Fault::max_from_zero, "maximum from 0, all scores below -100", FaultCase::o, has_no_empty_rows, {.negative = true}},
    {Fault::no_max, "no maximum, large scores", FaultCase::o, has_no_empty_rows, {.kind = InputKind::large}},
    {Fault::last_tile_dropped, "last K/V tile dropped", FaultCase::o, several_tiles},
    {Fault::scale_off, "scale off by sqrt 2", FaultCase::o, anywhere},
    {Fault::exp2_for_exp, "exp2 without log2 e", FaultCase::o, anywhere},
    {Fault::causal_one_more, "causal: one key too many", FaultCase::o, causal},
    {Fault::causal_one_less, "causal: one key too few", FaultCase::o, causal},
    {Fault::causal_top_left, "causal: top-left instead of bottom-right", FaultCase::o,
     [](const Shape& s, Dtype dtype) { return causal(s, dtype) && s.seq_q != s.seq_k; }},
    {Fault::wrong_kv_head, "wrong KV head under GQA", FaultCase::o,
     [](const Shape& s, Dtype) { return s.kv_heads > 1 && s.heads > s.kv_heads; }},
    {Fault::lse_in_log2, "LSE in log2", FaultCase::lse, anywhere},
    {Fault::lse_without_scale, "LSE without the scale", FaultCase::lse, anywhere},
    {Fault::unwritten_tail, "unwritten tail rows", FaultCase::o, [](const Shape& s, Dtype) { return s.seq_q % 16 != 0; }},
    {Fault::output_fragment_transposed, "an 8x8 fragment of O transposed", FaultCase::o, anywhere},
    {Fault::v_fragment_transposed, "an 8x8 fragment of V transposed", FaultCase::o, anywhere},
    {Fault::fp16_accumulation, "accumulation in fp16", FaultCase::o,
     // A sum of few keys stays within 4 ulp of fp16; bf16 is coarser than fp16's error anyway.
     [](const Shape& s, Dtype dtype) { return dtype != Dtype::bf16 && s.seq_k >= 64 && s.window == 0; }},
    {Fault::late_element, "one late-row element off by 5 %", FaultCase::o, anywhere},
    {Fault::head_copied, "the first head's output as the last's", FaultCase::o,
     [](const Shape& s, Dtype) { return s.batch * s.heads > 1; }},
    {Fault::last_calls_output, "the last call's output", FaultCase::o, anywhere},
    {Fault::rounded_to_bf16, "O rounded to bf16", FaultCase::o, [](const Shape&, Dtype dtype) { return dtype != Dtype::bf16; }},
    {Fault::a_key_of_100_left_out, "99 % of the keys, renormalised", FaultCase::o, several_tiles},
    {Fault::padded_keys, "keys beyond seq_k not masked", FaultCase::o,
     [](const Shape& s, Dtype) { return s.seq_k % 32 != 0 && s.window == 0; }},
    {Fault::window_one_more, "window: one key too many", FaultCase::o, windowed},
    {Fault::first_batch_only, "K and V of batch entry 0 everywhere", FaultCase::o,
     [](const Shape& s, Dtype) { return s.batch > 1; }},
    {Fault::empty_rows_nan, "rows without keys: 0/0", FaultCase::o, has_empty_rows},
    {Fault::empty_rows_mean, "rows without keys: mean of V", FaultCase::o, has_empty_rows},
    {Fault::empty_lse_zero, "rows without keys: LSE 0", FaultCase::lse, has_empty_rows},
};

bool same_bits(const Result& a, const Result& b) {
  return !check::first_difference(a.o, b.o).has_value() && !check::first_difference(a.lse, b.lse).has_value();
}

// Problems are made once for all faults that share their inputs, and the honest kernel is accepted at every one of them.
class Problems {
 public:
  struct Entry {
    Problem problem;
    Result honest;
  };
  const Entry& get(Shape s, Dtype dtype, const Inputs& inputs) {
    s.dtype = dtype;
    const std::string key =
        problem::to_string(s) + std::to_string(static_cast<int>(inputs.kind)) + (inputs.negative ? "-" : "+");
    const auto found = entries_.find(key);
    if (found != entries_.end()) return *found->second;
    auto entry = std::make_unique<Entry>(Entry{make_problem(s, inputs), {}});
    entry->honest = Kernel(entry->problem, Choices{}).run();
    const check::Verdict accepted = judge(entry->problem, entry->honest);
    INFO("honest: " << accepted.reason());
    CHECK(accepted.pass());
    return *(entries_[key] = std::move(entry));
  }

 private:
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

}  // namespace

// What became of one fault at all its shapes.
struct Tally {
  int tried = 0;
  int rejected = 0;
  std::set<std::string> shapes;
  double closest = infinity;  // the smallest error over allowed error by which it was rejected; NaN and poison do not count

  void add(const Shape& s, const TensorVerdict& verdict) {
    ++tried;
    rejected += !verdict.pass;
    shapes.insert(problem::to_string(s));
    if (!std::isnan(verdict.worst_ratio)) closest = std::min(closest, verdict.worst_ratio);
  }
};

TensorVerdict try_fault(const FaultCase& fault, const Problem& problem, const Result& honest) {
  const Result broken = Kernel(problem, Choices{}, fault.fault).run();
  REQUIRE_FALSE(same_bits(honest, broken));
  TensorVerdict verdict = fault.rejected == FaultCase::o ? judge_o(problem, broken.o) : judge_lse(problem, broken.lse);
  INFO("worst ratio " << verdict.worst_ratio);
  CHECK_FALSE(verdict.pass);
  CHECK(verdict.reason.empty() == verdict.pass);
  return verdict;
}

// `every`: all dtypes at each shape; else one, by turns.
void reject_broken_kernels(bool every) {
  Problems problems;
  std::printf("%-42s rejected at (shape, dtype)  shapes  smallest error / allowed\n", "fault");
  for (const FaultCase& fault : fault_cases) {
    Tally tally;
    std::size_t turn = 0;
    for (const Shape& s : fault_shapes) {
      std::vector<Dtype> changed;
      std::copy_if(std::begin(dtypes), std::end(dtypes), std::back_inserter(changed),
                   [&](Dtype dtype) { return fault.changes_result(s, dtype); });
      if (!every && !changed.empty()) changed = {changed[turn++ % changed.size()]};
      for (const Dtype dtype : changed) {
        const auto& [problem, honest] = problems.get(s, dtype, fault.inputs);
        INFO(fault.text << " at " << problem.text);
        tally.add(s, try_fault(fault, problem, honest));
      }
    }
    std::printf("%-42s %12d of %-3d %17zu %16.3g\n", fault.text, tally.rejected, tally.tried, tally.shapes.size(),
                tally.closest);
    INFO(fault.text);
    CHECK(tally.shapes.size() >= 4);
  }
}

TEST_CASE("every broken kernel is rejected wherever its fault changes the result, and the honest one beside it accepted") {
  reject_broken_kernels(false);
}
// Each key of a long row weighs little.
TEST_CASE("99 % of the keys of long rows, renormalised, are rejected, and all of them accepted") {
  for (const auto& [dtype, keys] : {std::pair(Dtype::fp32, 4000), {Dtype::fp16, 4000}, {Dtype::bf16, 1000}}) {
    Shape s = shape(1, 1, 1, 16, keys, 64);
    s.dtype = dtype;
    const Problem problem = make_problem(s);
    CHECK(judge(problem, Kernel(problem, Choices{}).run()).pass());
    const TensorVerdict verdict = judge_o(problem, Kernel(problem, Choices{}, Fault::a_key_of_100_left_out).run().o);
    std::printf("99 %% of %d keys, %s: largest error %.2f of what is allowed, mean %.2f\n", keys,
                std::string(::problem::name(dtype)).c_str(), verdict.worst_ratio, verdict.mean_error / verdict.mean_allowed);
    CHECK_FALSE(verdict.pass);
  }
}
TEST_CASE("every broken kernel is rejected in every type", "[.long]") { reject_broken_kernels(true); }

// ---- what must be accepted ----

namespace {

struct Lengths {
  int seq_q, seq_k;
};
constexpr Lengths lengths[] = {{1, 1},     {1, 3},   {3, 1},     {5, 5},     {17, 17},   {64, 64},
                               {64, 128},  {97, 97}, {113, 203}, {128, 217}, {203, 113}, {239, 1},
                               {256, 256}, {1, 512}, {257, 255}, {197, 197}, {7, 256}};

struct Heads {
  int batch, heads, kv_heads;
};
constexpr Heads head_counts[] = {{1, 1, 1}, {1, 3, 3}, {1, 14, 2}, {3, 1, 1}, {1, 4, 1}};
constexpr int dims[] = {32, 64, 128, 40, 96, 256};

struct NamedInputs {
  const char* text;
  Inputs inputs;
};
const NamedInputs input_kinds[] = {
    {"normal", {}},
    {"scores to 100", {.enlarge = 25}},
    {"scores to 160", {.enlarge = 40}},
    {"scores beyond 300", {.kind = InputKind::large}},
    {"one-hot rows", {.kind = InputKind::one_hot}},
    {"uniform rows", {.kind = InputKind::uniform}},
    {"all scores below -100", {.negative = true}},
};

const Choices honest_choices[] = {
    {.tile = 16},
    {.dot = Choices::Dot::four_sums, .tile = 64, .last_tile_first = true, .exp2 = true},
    {.dot = Choices::Dot::reversed, .tile = 128, .exp2 = true},
    {.dot = Choices::Dot::fused, .tile = 32, .last_tile_first = true},
};

template <class T, std::size_t n>
const T& pick(const T (&list)[n], std::size_t index) {
  return list[index % n];
}

// Case number `index` of a seed: lengths and mask in turn; heads, dim, dtype and inputs wander with index and seed, so that
// over the seeds every length meets several of each.
Shape accepted_shape(std::size_t index, std::size_t seed) {
  const auto [seq_q, seq_k] = pick(lengths, index / 2);
  const auto [batch, heads, kv_heads] = pick(head_counts, index / 2 + seed);
  const bool big = batch * heads * seq_q * seq_k > 50000;
  Shape s = shape(batch, heads, kv_heads, seq_q, seq_k, big ? 32 : pick(dims, index / 2 + seed * 5), index % 2 == 1);
  s.dtype = dtypes[(index + seed) % dtypes.size()];
  return s;
}

struct Acceptance {
  int problems = 0;
  int verdicts = 0;
  int rejections = 0;
  double worst = 0;       // error over allowed error
  double worst_mean = 0;  // the same of the mean rule

  void add(const check::Verdict& verdict) {
    INFO(verdict.reason());
    CHECK(verdict.pass());
    ++verdicts;
    rejections += !verdict.pass();
    for (const TensorVerdict& tensor : verdict.tensors) worst = std::max(worst, tensor.worst_ratio);
    if (verdict.tensors[0].mean_allowed > 0) {
      worst_mean = std::max(worst_mean, verdict.tensors[0].mean_error / verdict.tensors[0].mean_allowed);
    }
  }
};

std::vector<float> floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

namespace {

void accept_honest_kernels(std::size_t first_seed, std::size_t last_seed) {
  std::map<std::string, Acceptance> tallies;  // by dtype and kind of input
  for (std::size_t seed = first_seed; seed <= last_seed; ++seed) {
    for (std::size_t index = 0; index < 2 * std::size(lengths); ++index) {
      const Shape s = accepted_shape(index, seed);
      auto [text, inputs] = pick(input_kinds, index + seed * 3);
      inputs.seed = seed;
      const Problem problem = make_problem(s, inputs);
      Acceptance& tally = tallies[std::string(problem::name(s.dtype)) + ", " + text];
      INFO(text << " at " << problem.text);
      ++tally.problems;
      tally.add(judge(problem, {problem.baseline, floats(problem.truth.lse)}));
      tally.add(judge(problem, Kernel(problem, honest_choices[0]).run()));
      tally.add(judge(problem, Kernel(problem, pick(honest_choices, 1 + (index + seed) % 3)).run()));
    }
  }
  std::printf("%-32s problems  rejected  worst error / allowed  mean\n", "honest");
  for (const auto& [text, tally] : tallies) {
    std::printf("%-32s %8d %3d of %3d %20.2f %8.2f\n", text.c_str(), tally.problems, tally.rejections, tally.verdicts,
                tally.worst, tally.worst_mean);
  }
}

}  // namespace

TEST_CASE("honest kernels are accepted: every length, dtype and kind of input, other summation orders") {
  accept_honest_kernels(1, 3);
}
TEST_CASE("… and under seven seeds more", "[.long]") { accept_honest_kernels(4, 10); }

TEST_CASE("fp32 at large scores: without the rounding in the floor, honest kernels that sum in another order are rejected") {
  int rejected_without = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Problem problem = make_problem(shape(1, 1, 1, 128, 128, 64), {.seed = seed, .enlarge = 40});
    for (const Choices& choices : honest_choices) {
      const Result result = Kernel(problem, choices).run();
      rejected_without += !judge_o(problem, result.o, false).pass;
      CHECK(judge_o(problem, result.o).pass);
    }
  }
  std::printf("fp32, scores to 160: %d of 40 honest outputs rejected without the rounding, 0 with it\n", rejected_without);
  CHECK(rejected_without > 0);
}

TEST_CASE("permuting the keys leaves an honest kernel accepted") {
  for (const Dtype dtype : dtypes) {
    Shape s = shape(1, 2, 1, 50, 90, 64);
    s.dtype = dtype;
    const Problem problem = make_problem(s, {.enlarge = 10});
    Problem permuted = problem;  // the truth stays that of the first order
    for (int j = 0; j < s.seq_k; ++j) {
      const std::int64_t from = j * 37 % s.seq_k * s.dim;  // 37 and 90 have no common divisor
      std::copy_n(&problem.k[from], s.dim, &permuted.k[j * s.dim]);
      std::copy_n(&problem.v[from], s.dim, &permuted.v[j * s.dim]);
    }
    const Result result = Kernel(permuted, Choices{}).run();
    CHECK(result.o != Kernel(problem, Choices{}).run().o);
    CHECK(judge(problem, result).pass());
  }
}

// ---- NaN in the input ----

TEST_CASE("a NaN in V must reach its column in the rows that see it, and nothing else; the other columns are compared") {
  for (const Dtype dtype : dtypes) {
    Shape s = shape(1, 1, 1, 40, 40, 32, true);
    s.dtype = dtype;
    Problem problem = make_problem(s);
    problem.v[25 * s.dim + 3] = quiet_nan;
    problem = with_truth(std::move(problem));
    const Result honest = Kernel(problem, Choices{}).run();
    REQUIRE(std::isnan(honest.o[25 * s.dim + 3]));
    const check::Verdict verdict = judge(problem, honest);
    INFO(verdict.reason());
    CHECK(verdict.pass());
    CHECK(verdict.tensors[0].rows_checked == 40);
    CHECK(verdict.tensors[0].rows_exempt == 0);

    const auto reason = [&](int row, int column, float value) {
      std::vector<float> changed = honest.o;
      changed[row * s.dim + column] = value;
      return judge_o(problem, changed).reason;
    };
    CHECK(reason(24, 3, quiet_nan) == "row (batch 0, head 0, query 24): element 3 is nan");  // 0 · NaN of a masked key
    CHECK(reason(30, 3, 0.5f) == "row (batch 0, head 0, query 30): element 3 is 0.5 where it must be nan");
    CHECK(reason(30, 4, quiet_nan) == "row (batch 0, head 0, query 30): element 4 is nan");
    CHECK(reason(30, 4, 9.0f).starts_with("row (batch 0, head 0, query 30): error"));
    CHECK(reason(30, 3, check::poison_value(dtype)) == "row (batch 0, head 0, query 30): element 3 was not written");
  }
}

// ---- the rules one by one ----

namespace {

// One tensor of a few rows, judged by hand-made truth and baseline.
TensorVerdict judge_values(Dtype dtype, std::int64_t cols, const std::vector<float>& out, const std::vector<double>& truth,
                           const std::vector<float>& baseline, double factor = check::output_factor) {
  return check::judge({.name = "O", .dtype = dtype, .cols = cols, .values = out},
                      {.truth = truth, .baseline = baseline, .factor = factor});
}

// A tensor of `rows` rows of one element, all 1 but the last, which is `last`; the truth is 1 everywhere.
TensorVerdict judge_last(Dtype dtype, float last, float last_baseline, double factor = check::output_factor) {
  constexpr std::size_t rows = 100;
  std::vector<float> out(rows, 1.0f), baseline(rows, 1.0f);
  baseline.front() = 2.0f;  // so bad that the mean rule is silent
  out.back() = last;
  baseline.back() = last_baseline;
  return judge_values(dtype, 1, out, std::vector<double>(rows, 1.0), baseline, factor);
}

}  // namespace

TEST_CASE("ulp is the distance between neighbouring numbers") {
  CHECK(check::ulp(Dtype::fp32, 1.0) == std::ldexp(1.0, -23));
  CHECK(check::ulp(Dtype::fp16, 1.0) == std::ldexp(1.0, -10));
  CHECK(check::ulp(Dtype::bf16, 1.0) == std::ldexp(1.0, -7));
  CHECK(check::ulp(Dtype::bf16, -1.99) == std::ldexp(1.0, -7));
  CHECK(check::ulp(Dtype::bf16, 0.999) == std::ldexp(1.0, -8));
  CHECK(check::ulp(Dtype::fp16, 0.0) == std::ldexp(1.0, -24));
  CHECK(check::ulp(Dtype::fp16, 1e-6) == std::ldexp(1.0, -24));
  CHECK(check::ulp(Dtype::fp32, 0.0) == std::numeric_limits<float>::denorm_min());
  for (const float x : {1.0f, 3.5f, 1e-3f, 1e30f}) CHECK(check::ulp(Dtype::fp32, x) == std::nextafter(x, infinity) - x);
}

TEST_CASE("the floor: twice 2 ulp of a 16-bit dtype, twice 16 ulp of fp32, where the baseline has no error") {
  const auto at_ulps = [](Dtype dtype, double ulps) { return static_cast<float>(1 + ulps * check::ulp(dtype, 1.0)); };
  for (const Dtype dtype : dtypes) {
    const double allowed = dtype == Dtype::fp32 ? 32 : 4;
    CHECK(judge_last(dtype, at_ulps(dtype, allowed), 1).pass);
    CHECK_FALSE(judge_last(dtype, at_ulps(dtype, allowed + 1), 1).pass);
    CHECK(judge_last(dtype, at_ulps(dtype, allowed * 1.5), 1, check::gradient_factor).pass);
    CHECK_FALSE(judge_last(dtype, at_ulps(dtype, allowed * 1.5 + 1), 1, check::gradient_factor).pass);
  }
}

TEST_CASE("the row rule: twice the baseline's error in that very row, three times for gradients") {
  CHECK(judge_last(Dtype::fp32, 1.0199f, 1.01f).pass);
  CHECK_FALSE(judge_last(Dtype::fp32, 1.0201f, 1.01f).pass);
  CHECK(judge_last(Dtype::fp32, 1.0299f, 1.01f, check::gradient_factor).pass);
  CHECK_FALSE(judge_last(Dtype::fp32, 1.0301f, 1.01f, check::gradient_factor).pass);

  const std::vector<double> truth = {100, 100, 1, 1};  // a large row and a small one
  const std::vector<float> baseline = {100.1f, 100, 1, 1};
  CHECK(judge_values(Dtype::fp32, 2, {100, 100.1f, 1, 1}, truth, baseline).pass);
  const TensorVerdict hidden = judge_values(Dtype::fp32, 2, {100, 100, 1, 1.05f}, truth, baseline);
  CHECK_FALSE(hidden.pass);
  CHECK(hidden.worst_row == 1);
  CHECK(hidden.reason == "row (1): error 0.05 where 3.8e-06 is allowed");
  CHECK(hidden.max_error == Approx(0.05));
  CHECK(hidden.max_baseline_error == Approx(0.1).epsilon(1e-4));
}

TEST_CASE("the mean rule sees a bias that every row hides") {
  const std::size_t count = 64;
  const auto biased = [&](double ulps) {
    const auto value = static_cast<float>(1 + ulps * check::ulp(Dtype::fp16, 1.0));
    return judge_values(Dtype::fp16, 8, std::vector<float>(count, value), std::vector<double>(count, 1.0),
                        std::vector<float>(count, 1.0f));
  };
  CHECK(biased(1).pass);
  const TensorVerdict verdict = biased(2);
  CHECK_FALSE(verdict.pass);
  CHECK(verdict.worst_ratio == Approx(0.5));
  CHECK(verdict.mean_error == Approx(2 * check::ulp(Dtype::fp16, 1.0)));
  CHECK(verdict.mean_allowed == Approx(1.5 * (0.5 + 1.5 / 8) * check::ulp(Dtype::fp16, 1.0)));  // of 64 elements
  CHECK(verdict.reason == "mean error 0.002 where 0.001 is allowed, though every row is within its own bounds");
}

TEST_CASE("the rounding raises the floor of its row, and of no other") {
  const std::vector<double> truth = {1, 1}, rounding = {0.01, 0};
  const std::vector<float> baseline = {1, 1};
  const auto judged = [&](std::vector<float> out) {
    return check::judge({.name = "O", .cols = 1, .values = out}, {.truth = truth, .baseline = baseline, .rounding = rounding});
  };
  CHECK(judged({1.0149f, 1}).pass);
  CHECK_FALSE(judged({1.0201f, 1}).pass);
  CHECK_FALSE(judged({1, 1.001f}).pass);
}

TEST_CASE("LSE: 1e-3 for 16-bit inputs, 1e-5 of max(1, |LSE|) for fp32, minus infinity for rows without keys") {
  const std::vector<double> truth = {0.5, -300, -static_cast<double>(infinity)};
  const std::vector<RowRule> rules = {RowRule::compare, RowRule::compare, RowRule::empty};
  const auto judged = [&](Dtype inputs, std::vector<float> values, std::span<const double> rounding = {}) {
    return check::judge_lse({.name = "LSE", .values = values, .rules = rules, .empty_value = -infinity}, truth, inputs,
                            rounding);
  };
  CHECK(judged(Dtype::fp32, {0.500009f, -300.002f, -infinity}).pass);
  CHECK_FALSE(judged(Dtype::fp32, {0.500011f, -300, -infinity}).pass);
  CHECK_FALSE(judged(Dtype::fp32, {0.5f, -300.004f, -infinity}).pass);
  CHECK(judged(Dtype::fp32, {0.500011f, -300, -infinity}, std::vector<double>{1.2e-5, 0, 0}).pass);
  CHECK_FALSE(judged(Dtype::fp32, {0.500013f, -300, -infinity}, std::vector<double>{1.2e-5, 0, 0}).pass);
  CHECK(judged(Dtype::fp16, {0.5009f, -300.0009f, -infinity}).pass);
  CHECK_FALSE(judged(Dtype::bf16, {0.5011f, -300, -infinity}).pass);
  CHECK(judged(Dtype::fp32, {0.5f, -300, 0}).reason == "row (2): element 0 is 0 where no key is seen, so that it must be -inf");
  CHECK_FALSE(judged(Dtype::fp32, {0.5f, -300, infinity}).pass);
  CHECK_FALSE(judged(Dtype::fp32, {0.5f, -300, quiet_nan}).pass);
  CHECK_FALSE(judged(Dtype::fp32, {0.5f, -infinity, -infinity}).pass);
}

TEST_CASE("poison is found in every dtype, and an ordinary NaN is not called so") {
  CHECK(std::bit_cast<std::uint32_t>(check::poison_value(Dtype::fp32)) == 0x7fed7fedu);
  CHECK(problem::fp16_bits(check::poison_value(Dtype::fp16)) == 0x7fed);
  CHECK(problem::bf16_bits(check::poison_value(Dtype::bf16)) == 0x7fed);
  for (const Dtype dtype : dtypes) {
    std::vector<float> values = {1, 2, 3, check::poison_value(dtype)};
    const check::Output output{.name = "O", .dtype = dtype, .cols = 2, .values = values};
    CHECK(check::judge_written(output).reason == "row (1): element 1 was not written");
    values[3] = quiet_nan;
    CHECK(check::judge_written(output).reason == "row (1): element 1 is nan");
    values[3] = infinity;
    CHECK_FALSE(check::judge_written(output).pass);
    values[3] = 4;
    CHECK(check::judge_written(output).pass);
  }
}

TEST_CASE("where the truth is NaN or infinite the element must be, and the others are compared") {
  const double inf = infinity, nan = quiet_nan;
  const std::vector<double> truth = {nan, inf, -inf, 1};
  const auto reason = [&](std::vector<float> out, bool nan_for_infinity = false) {
    const std::vector<float> baseline = {quiet_nan, infinity, quiet_nan, 1};
    return check::judge({.name = "O", .cols = 4, .values = out},
                        {.truth = truth, .baseline = baseline, .nan_for_infinity = nan_for_infinity})
        .reason;
  };
  CHECK(reason({quiet_nan, infinity, -infinity, 1}) == "");
  CHECK(reason({3, infinity, -infinity, 1}) == "row (0): element 0 is 3 where it must be nan");
  CHECK(reason({infinity, infinity, -infinity, 1}) == "row (0): element 0 is inf where it must be nan");
  CHECK(reason({quiet_nan, 3, -infinity, 1}) == "row (0): element 1 is 3 where it must be inf");
  CHECK(reason({quiet_nan, infinity, infinity, 1}) == "row (0): element 2 is inf where it must be -inf");
  CHECK(reason({quiet_nan, infinity, quiet_nan, 1}) == "row (0): element 2 is nan where it must be -inf");
  CHECK(reason({quiet_nan, infinity, quiet_nan, 1}, true) == "");
  CHECK(reason({quiet_nan, -infinity, -infinity, 1}, true) == "row (0): element 1 is -inf where it must be inf");
  CHECK(reason({quiet_nan, infinity, -infinity, quiet_nan}) == "row (0): element 3 is nan");
  CHECK(reason({quiet_nan, infinity, -infinity, 1.1f}).starts_with("row (0): error 0.1"));
}

TEST_CASE("where an honest sum may overflow the element is infinite, NaN or right") {
  const std::vector<double> truth = {1e38, 1e38, 2};
  const std::vector<std::uint8_t> may_overflow = {1, 0, 1};
  const auto pass = [&](std::vector<float> out) {
    const std::vector<float> baseline = {infinity, 1e38f, 2};
    return check::judge({.name = "C", .cols = 3, .values = out},
                        {.truth = truth, .baseline = baseline, .may_overflow = may_overflow})
        .pass;
  };
  CHECK(pass({1e38f, 1e38f, 2}));
  CHECK(pass({quiet_nan, 1e38f, -infinity}));
  CHECK_FALSE(pass({1e38f, infinity, 2}));
  CHECK_FALSE(pass({1e38f, quiet_nan, 2}));
  CHECK_FALSE(pass({9e37f, 1e38f, 2}));
}

TEST_CASE("next to the dtype's largest number an infinity stands for the next number beyond it") {
  const auto pass = [&](Dtype dtype, float out, double truth) {
    return judge_values(dtype, 1, {out}, {truth}, {problem::round_to(dtype, static_cast<float>(truth))}).pass;
  };
  CHECK(pass(Dtype::fp16, infinity, 65519));
  CHECK(pass(Dtype::fp16, infinity, 70000));
  CHECK(pass(Dtype::fp16, 65504, 65521));
  CHECK(pass(Dtype::fp16, -infinity, -1e6));
  CHECK_FALSE(pass(Dtype::fp16, infinity, -70000));
  CHECK_FALSE(pass(Dtype::fp16, infinity, 60000));
  CHECK_FALSE(pass(Dtype::fp16, infinity, 3000));
  CHECK_FALSE(pass(Dtype::fp16, 65504, 70000));
  CHECK_FALSE(pass(Dtype::fp16, quiet_nan, 70000));
  CHECK(pass(Dtype::bf16, infinity, 3.4e38));
  CHECK_FALSE(pass(Dtype::bf16, infinity, 2e38));
  CHECK(pass(Dtype::fp32, infinity, 3.40282346e38));
  CHECK_FALSE(pass(Dtype::fp32, infinity, 3.4e38));
}

TEST_CASE("with sizes every element has bounds of its own; without, the largest of a row hides the small ones") {
  const std::vector<double> truth = {1e6, 1}, size = {1e6, 1};
  const std::vector<float> baseline = {1e6f, 1}, zero = {1e6f, 0};
  CHECK(check::judge({.name = "C", .cols = 2, .values = zero}, {.truth = truth, .baseline = baseline}).pass);
  CHECK_FALSE(
      check::judge({.name = "C", .cols = 2, .values = zero}, {.truth = truth, .baseline = baseline, .size = size}).pass);
}

TEST_CASE("a row's elements must be within reach each alone, and all together") {
  // Two keys may win: the row is (1, 1) or (−1, −1), or anything between.
  const std::vector<double> truth = {1, 1};
  const auto judged = [&](std::vector<float> out) {
    const std::vector<float> baseline = {-1, -1};
    check::Expected expected{.truth = truth, .baseline = baseline, .size = truth};
    expected.reach = [](std::int64_t, std::span<const double> direction) {
      return std::max(0.0, -2 * direction[0] - 2 * direction[1]);
    };
    return check::judge({.name = "O", .cols = 2, .values = out}, expected).pass;
  };
  CHECK(judged({1, 1}));
  CHECK(judged({-1, -1}));
  CHECK(judged({0.5f, 0.5f}));
  CHECK_FALSE(judged({-1.1f, -1.1f}));
  CHECK_FALSE(judged({1.1f, 1}));
  CHECK_FALSE(judged({-1, 1.1f}));
}

TEST_CASE("rows without keys must be exactly zero, of either sign") {
  const std::vector<RowRule> rules = {RowRule::empty};
  const auto judged = [&](float value) {
    const std::vector<float> values = {0, value};
    return check::judge({.name = "O", .cols = 2, .values = values, .rules = rules},
                        {.truth = std::vector<double>{0, 0}, .baseline = std::vector<float>{0, 0}});
  };
  CHECK(judged(0.0f).pass);
  CHECK(judged(-0.0f).pass);
  CHECK(judged(0.0f).rows_checked == 1);
  CHECK(judged(check::poison_value(Dtype::fp32)).reason == "row (0): element 1 was not written");
  CHECK_FALSE(judged(std::numeric_limits<float>::denorm_min()).pass);
  CHECK_FALSE(judged(quiet_nan).pass);
}

TEST_CASE("rows that cannot be judged, and spans that do not fit, are errors and not passes") {
  CHECK(judge_values(Dtype::fp32, 1, {1}, {1}, {quiet_nan}).reason ==
        "row (0): the baseline is not finite where the truth is, so the row cannot be judged");
  CHECK_THROWS_AS(judge_values(Dtype::fp32, 2, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}), std::invalid_argument);
  CHECK_THROWS_AS(judge_values(Dtype::fp32, 1, {1, 2}, {1}, {1, 2}), std::invalid_argument);
  CHECK_THROWS_AS(judge_values(Dtype::fp32, 1, {1, 2}, {1, 2}, {1}), std::invalid_argument);
  const std::vector<float> values = {1, 2};
  const std::vector<double> truth = {1, 2}, too_few = {1};
  const std::vector<RowRule> one_rule = {RowRule::compare};
  CHECK_THROWS_AS(check::judge({.name = "O", .values = values}, {truth, values, too_few}), std::invalid_argument);
  CHECK_THROWS_AS(check::judge({.name = "O", .values = values, .rules = one_rule}, {truth, values}), std::invalid_argument);
  CHECK_THROWS_AS(check::judge_lse({.name = "LSE", .values = values}, too_few, Dtype::fp32), std::invalid_argument);
}

TEST_CASE("integers must be equal to the truth, in number and one by one") {
  problem::Integers truth({2, 3});
  truth.values = {1, 2, 3, 4, 5, std::numeric_limits<std::int32_t>::min()};
  const TensorVerdict right = check::judge_integers("ids", truth, truth);
  CHECK((right.pass && right.rows_checked == 2 && right.worst_ratio == 0));
  problem::Integers wrong = truth;
  ++wrong.values[5];
  CHECK(check::judge_integers("ids", wrong, truth).reason == "element [1, 2] is -2147483647 and must be -2147483648");
  wrong.values[2] = static_cast<std::int32_t>(check::poison_word);
  CHECK(check::judge_integers("ids", wrong, truth).reason == "element [0, 2] is 2146271213, which nobody wrote, and must be 3");
  for (const std::int32_t poison : {-19, 127}) {  // the two bytes of it
    wrong.values[2] = poison;
    CHECK(check::judge_integers("ids", wrong, truth, problem::Element::int8()).reason ==
          "element [0, 2] is " + std::to_string(poison) + ", which it is if nobody wrote it, and must be 3");
  }
  wrong.values[2] = -128;
  CHECK(check::judge_integers("ids", wrong, truth, problem::Element::int8()).reason == "element [0, 2] is -128 and must be 3");
  const problem::Integers shorter({1, 3}), none({0, 3});
  CHECK(check::judge_integers("ids", shorter, truth).reason == "its shape is [1, 3] and must be [2, 3]");
  CHECK_FALSE(check::judge_integers("ids", none, shorter).pass);
  CHECK(check::judge_integers("ids", none, none).pass);
}

TEST_CASE("two runs are compared bit by bit") {
  const std::vector<float> run = {1, quiet_nan, 0.0f, 4};
  CHECK_FALSE(check::first_difference(run, run).has_value());
  CHECK(check::first_difference(run, std::vector<float>{1, quiet_nan, -0.0f, 4}) == 2);
  CHECK(check::first_difference(run, std::vector<float>{1, quiet_nan, 0.0f, std::nextafter(4.0f, 5.0f)}) == 3);
  CHECK_THROWS_AS(check::first_difference(run, std::vector<float>{1}), std::invalid_argument);
}

TEST_CASE("a verdict passes when every tensor, the guards and the second run do") {
  TensorVerdict good, bad;
  good.name = "O";
  bad.name = "LSE";
  bad.pass = false;
  bad.reason = "row (0): wrong";
  CHECK(check::Verdict{{good}, true, true}.pass());
  CHECK(check::Verdict{{good}, true, std::nullopt}.pass());
  CHECK(check::Verdict{{good, bad}, true, true}.reason() == "LSE: row (0): wrong");
  CHECK(check::Verdict{{good}, false, true}.reason() == "memory before or after a buffer was written");
  CHECK(check::Verdict{{good}, true, false}.reason() == "two runs gave different bits");
}
