// The judge of gradients is tested with kernels: a small backward pass of attention on the host, honest or with one fault of
// many. Honest ones must be accepted wherever they run, broken ones rejected wherever the fault changes the result. Then the
// ends of what numbers can be: offsets, factors, NaN, infinities, one key, one query, one column.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/run/family/backward_truth.h"
#include "common/run/family/baseline_rounding.h"
#include "tests/catch.h"

namespace {

using check::RowRule;
using check::TensorVerdict;
using problem::Backward;
using problem::BackwardInputs;
using problem::Dtype;
using problem::InputKind;
using problem::Tensor;

constexpr float inf = INFINITY;
const float not_a_number = std::nanf("");
constexpr float log2_e = 1.44269504088896341f;
constexpr std::array<Dtype, 3> dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

// ---- the kernel ----

enum class Fault {
  none,
  d_dropped,
  d_of_wrong_row,
  p_into_dk,
  ds_into_dv,
  sign_of_dk,
  dq_without_scale,
  dk_without_scale,
  scale_twice,
  dv_scaled,
  p_unnormalised,
  p_without_lse,
  lse_as_log2,
  one_more,
  one_more_in_dq,
  one_more_in_dk,
  one_more_in_dv,
  one_less,
  one_less_in_dq,
  one_less_in_dk,
  one_less_in_dv,
  top_left,
  diagonal_dropped,
  window_one_more,
  last_queries_dropped_in_dk,
  last_queries_dropped_in_dv,
  last_keys_dropped_in_dq,
  heads_overwritten,
  dk_in_another_head,
  wrong_kv_head,
  addition_lost,
  addition_lost_in_dk,
  tile_twice,
  rows_of_dp_swapped,
  empty_rows_nan,
  unseen_keys_garbage,
  padded_keys,
  padded_queries,
  first_batch_only,
  zeros_in_dq,
  zeros_in_dk,
  zeros_in_dv,
  late_element,
  unwritten_tail,
  head_copied,
  last_calls_output,
  rounded_to_bf16,
  a_pair_of_100_left_out,
  fp16_accumulation,
};

// What honest kernels do differently.
struct Choices {
  bool last_dim_first = false;
  bool last_key_first = false;
  bool last_query_first = false;
  bool exp2 = false;             // with log2 e folded into the scale
  bool scale_in_ds = false;      // dS scaled before it is rounded
  bool d_from_p = false;         // D = Σ P dP instead of rowsum(dO ∘ O)
  bool ds_from_rounded = false;  // dS from P as rounded for dV
};

struct Gradients {
  Tensor dq, dk, dv;
};

enum Which { dq_ = 0, dk_ = 1, dv_ = 2 };

constexpr int tile = 16;

class Kernel {
 public:
  Kernel(const Backward& shape, const BackwardInputs& in, Choices choices = {}, Fault fault = Fault::none)
      : a_(shape), in_(in), choices_(choices), fault_(fault), group_(shape.heads / shape.kv_heads) {}

  Gradients run() {
    Gradients out{Tensor(in_.q.shape), Tensor(in_.k.shape), Tensor(in_.v.shape)};
    for (int batch = 0; batch < a_.batch; ++batch) {
      for (int head = 0; head < a_.heads; ++head) run_head(batch, head, out);
    }
    spoil(out);
    return out;
  }

 private:
  bool has(Fault fault) const { return fault_ == fault; }

  // Whether the pair adds to one of the outputs.
  bool sees(int i, int j, Which which) const {
    int begin = a_.first_key(i), end = a_.last_key(i);
    if (has(Fault::top_left)) end = std::min(i + 1, a_.seq_k);
    const bool more = has(Fault::one_more) || (has(Fault::one_more_in_dq) && which == dq_) ||
                      (has(Fault::one_more_in_dk) && which == dk_) || (has(Fault::one_more_in_dv) && which == dv_);
    const bool less = has(Fault::one_less) || (has(Fault::one_less_in_dq) && which == dq_) ||
                      (has(Fault::one_less_in_dk) && which == dk_) || (has(Fault::one_less_in_dv) && which == dv_);
    if (more && end < a_.seq_k && begin < end) ++end;
    if (less) --end;
    if (has(Fault::window_one_more) && begin > 0) --begin;
    if (has(Fault::diagonal_dropped) && j == i + a_.seq_k - a_.seq_q) return false;
    if (has(Fault::padded_keys) && end == a_.seq_k) end = padded(a_.seq_k);
    const int last_queries = (a_.seq_q - 1) / tile * tile, last_keys = (a_.seq_k - 1) / tile * tile;
    if (has(Fault::last_queries_dropped_in_dk) && which == dk_ && i >= last_queries) return false;
    if (has(Fault::last_queries_dropped_in_dv) && which == dv_ && i >= last_queries) return false;
    if (has(Fault::last_keys_dropped_in_dq) && which == dq_ && j >= last_keys) return false;
    return begin <= j && j < end;
  }

  static int padded(int rows) { return (rows + tile - 1) / tile * tile; }

  float dot(const float* a, const float* b) const {
    float sum = 0;
    for (int d = 0; d < a_.dim; ++d) {
      const int at = choices_.last_dim_first ? a_.dim - 1 - d : d;
      sum += a[at] * b[at];
    }
    return sum;
  }

  float probability(float s, float lse, float max) const {
    if (has(Fault::p_without_lse)) return std::exp(s);
    if (has(Fault::p_unnormalised)) return std::exp(s - max);
    if (has(Fault::lse_as_log2)) return std::exp2(s * log2_e - lse);
    return choices_.exp2 ? std::exp2(s - lse * log2_e) : std::exp(s - lse);
  }

  float rounded(float x) const { return problem::round_to(a_.dtype, x); }

  void add(float& sum, float x) const {
    sum += x;
    if (has(Fault::fp16_accumulation)) sum = problem::round_to(Dtype::fp16, sum);
  }

  void run_head(int batch, int head, Gradients& out) {
    const int kv_head = has(Fault::wrong_kv_head) ? head % a_.kv_heads : head / group_;
    const std::int64_t first_q = (std::int64_t{batch} * a_.heads + head) * a_.seq_q;
    const std::int64_t first_k = (std::int64_t{batch} * a_.kv_heads + kv_head) * a_.seq_k;
    const std::int64_t from_k = (std::int64_t{has(Fault::first_batch_only) ? 0 : batch} * a_.kv_heads + kv_head) * a_.seq_k;
    if (has(Fault::heads_overwritten)) {
      std::fill_n(&out.dk.values[first_k * a_.dim], a_.seq_k * a_.dim, 0.0f);
      std::fill_n(&out.dv.values[first_k * a_.dim], a_.seq_k * a_.dim, 0.0f);
    }
    const int rows = has(Fault::padded_queries) ? padded(a_.seq_q) : a_.seq_q;
    for (int n = 0; n < rows; ++n) {
      const int i = std::min(choices_.last_query_first ? rows - 1 - n : n, a_.seq_q - 1);
      run_row(i, first_q, first_k, from_k, n >= a_.seq_q, out);
    }
  }

  void run_row(int i, std::int64_t first_q, std::int64_t first_k, std::int64_t from_k, bool again, Gradients& out) {
    const int dim = a_.dim;
    const std::int64_t at = first_q + i;
    const float lse = in_.lse.values[at];
    if (lse == -inf) return;
    const float* q = &in_.q.values[at * dim];
    const float* d_o = &in_.d_o.values[at * dim];
    const std::int64_t other = has(Fault::rows_of_dp_swapped) && (i ^ 1) < a_.seq_q ? first_q + (i ^ 1) : at;
    const float scale = *a_.scale * (choices_.exp2 ? log2_e : 1.0f);
    const int keys = padded(a_.seq_k);
    std::vector<float> s(keys), dp(keys), p(keys);
    float max = -inf;
    for (int j = std::max(0, a_.first_key(i) - 1); j < keys; ++j) {
      const std::int64_t key = (from_k + std::min(j, a_.seq_k - 1)) * dim;
      s[j] = scale * dot(q, &in_.k.values[key]);
      dp[j] = dot(&in_.d_o.values[other * dim], &in_.v.values[key]);
      if (a_.first_key(i) <= j && j < a_.last_key(i)) max = std::max(max, s[j]);
    }
    float d = 0, left_out = 0;
    for (int j = std::max(0, a_.first_key(i) - 1); j < keys; ++j) {
      p[j] = probability(s[j], lse, max);
      if (choices_.d_from_p && sees(i, j, dq_)) d += p[j] * dp[j];
    }
    for (int j = at % 100; has(Fault::a_pair_of_100_left_out) && j < keys; j += 100) {
      if (sees(i, j, dq_)) left_out += std::exchange(p[j], 0.0f);
    }
    for (float& x : p) x /= 1 - left_out;
    const std::int64_t d_row = has(Fault::d_of_wrong_row) ? first_q + (i + 1) % a_.seq_q : at;
    if (!choices_.d_from_p) d = dot(&in_.d_o.values[d_row * dim], &in_.o.values[d_row * dim]);
    if (has(Fault::d_dropped)) d = 0;
    std::vector<float> dq(dim, 0.0f);
    for (int n = 0; n < keys; ++n) {
      const int j = choices_.last_key_first ? keys - 1 - n : n;
      const bool in_dq = sees(i, j, dq_), in_dk = sees(i, j, dk_), in_dv = sees(i, j, dv_);
      if (!in_dq && !in_dk && !in_dv) continue;
      const int jj = std::min(j, a_.seq_k - 1);
      const float used = choices_.ds_from_rounded ? rounded(p[j]) : p[j];
      const float unrounded = used * (dp[j] - d);
      const float ds = rounded(choices_.scale_in_ds ? *a_.scale * unrounded : unrounded);
      for (int c = 0; c < dim; ++c) {
        const bool lost = has(Fault::addition_lost) && c == 3 && i == a_.seq_q - 1 && j / tile == 1;
        const bool twice = has(Fault::tile_twice) && i / tile == (a_.seq_q - 1) / tile && j / tile == 0;
        if (in_dq && !lost && !again) add(dq[c], (twice ? 2 : 1) * (ds * in_.k.values[(from_k + jj) * dim + c]));
        const bool lost_in_dk =
            has(Fault::addition_lost_in_dk) && c == 3 && j == a_.seq_k - 1 && i / tile == a_.seq_q / 2 / tile;
        const float into_dk = has(Fault::p_into_dk) ? rounded(p[j]) : has(Fault::sign_of_dk) ? -ds : ds;
        if (in_dk && !lost_in_dk) add(out.dk.values[(first_k + jj) * dim + c], into_dk * q[c]);
        if (in_dv) add(out.dv.values[(first_k + jj) * dim + c], (has(Fault::ds_into_dv) ? ds : rounded(p[j])) * d_o[c]);
      }
    }
    if (again) return;
    std::copy(dq.begin(), dq.end(), &out.dq.values[at * dim]);
  }

  // The epilogue, and faults that spoil a finished result.
  void spoil(Gradients& out) {
    const float scale = choices_.scale_in_ds ? 1.0f : *a_.scale;
    const float dq_scale = has(Fault::dq_without_scale) ? 1 : has(Fault::scale_twice) ? scale * scale : scale;
    const float dk_scale = has(Fault::dk_without_scale) ? 1 : has(Fault::scale_twice) ? scale * scale : scale;
    for (float& x : out.dq.values) x = rounded(dq_scale * x);
    for (float& x : out.dk.values) x = rounded(dk_scale * x);
    for (float& x : out.dv.values) x = rounded((has(Fault::dv_scaled) ? scale : 1) * x);
    if (has(Fault::dk_in_another_head)) {
      const std::int64_t head = std::int64_t{a_.seq_k} * a_.dim;
      std::swap_ranges(out.dk.values.begin(), out.dk.values.begin() + head, out.dk.values.begin() + head);
    }
    for (Tensor* tensor : {&out.dq, &out.dk, &out.dv}) {
      const std::int64_t head = tensor->shape[2] * tensor->shape[3];
      if (has(Fault::head_copied)) std::copy_n(tensor->values.begin(), head, tensor->values.end() - head);
      if (has(Fault::rounded_to_bf16)) {
        for (float& x : tensor->values) x = problem::round_to(Dtype::bf16, x);
      }
    }
    if (has(Fault::zeros_in_dq)) out.dq = Tensor(out.dq.shape);
    if (has(Fault::zeros_in_dk)) out.dk = Tensor(out.dk.shape);
    if (has(Fault::zeros_in_dv)) out.dv = Tensor(out.dv.shape);
    if (has(Fault::late_element)) {
      const auto smaller = [](float x, float y) { return std::abs(x) < std::abs(y); };
      float& largest = *std::max_element(out.dk.values.end() - a_.dim, out.dk.values.end(), smaller);
      largest = rounded(1.1f * largest);
    }
    for (std::int64_t row = 0; row < std::ssize(out.dq.values) / a_.dim; ++row) {
      const int i = static_cast<int>(row % a_.seq_q);
      const bool empty = a_.first_key(i) == a_.last_key(i);
      if (has(Fault::empty_rows_nan) && empty) std::fill_n(&out.dq.values[row * a_.dim], a_.dim, not_a_number);
      if (has(Fault::unwritten_tail) && i >= a_.seq_q / 16 * 16) {
        std::fill_n(&out.dq.values[row * a_.dim], a_.dim, check::poison_value(a_.dtype));
      }
    }
    const auto spec = run::spec_of(a_);
    for (std::int64_t row = 0; has(Fault::unseen_keys_garbage) && row < std::ssize(out.dk.values) / a_.dim; ++row) {
      if (reference::queries_seeing(spec, static_cast<int>(row % a_.seq_k)).empty()) out.dv.values[row * a_.dim] = 1e-6f;
    }
  }

  Backward a_;
  const BackwardInputs& in_;
  Choices choices_;
  Fault fault_;
  int group_;
};

// ---- problems ----

Backward shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, bool causal = false, int window = 0,
               std::optional<float> scale = {}) {
  return {{batch, heads, kv_heads, seq_q, seq_k, dim, causal, window, scale}};
}

// O and LSE as an honest forward pass stores them.
void attend(const Backward& a, BackwardInputs& in) {
  const auto spec = run::spec_of(a);
  const auto rows = reference::all_rows(spec);
  in.o = Tensor({a.batch, a.heads, a.seq_q, a.dim});
  in.lse = Tensor({a.batch, a.heads, a.seq_q});
  in.o.values = reference::baseline(spec, rows, in.q.values, in.k.values, in.v.values, run::round_to_dtype(a.dtype));
  const auto truth = reference::forward(spec, rows, std::span<const float>(in.q.values), in.k.values, in.v.values);
  std::copy(truth.lse.begin(), truth.lse.end(), in.lse.values.begin());
}

struct Problem {
  Backward a;
  BackwardInputs in;
  std::unique_ptr<run::BackwardTruth> truth;
  std::string text;

  std::vector<TensorVerdict> judge(const Gradients& out) const { return truth->judge(out.dq, out.dk, out.dv); }
  Gradients run(Choices choices = {}, Fault fault = Fault::none) const { return Kernel(a, in, choices, fault).run(); }
};

Problem with_truth(const Backward& a, BackwardInputs in, const std::string& text = "") {
  attend(a, in);
  Problem p{a, std::move(in), nullptr, problem::to_string(a) + text};
  p.truth = std::make_unique<run::BackwardTruth>(p.a, p.in);
  return p;
}

Problem make_problem(Backward s, Dtype dtype, std::uint64_t seed = 1, InputKind kind = InputKind::normal) {
  s.dtype = dtype;
  s = problem::resolve(s);
  return with_truth(s, problem::make_inputs(s, seed, kind),
                    ", seed " + std::to_string(seed) + ", kind " + std::to_string(static_cast<int>(kind)));
}

std::string first_reason(const std::vector<TensorVerdict>& verdicts) { return check::Verdict{verdicts, true, {}}.reason(); }

bool accepts(const Problem& p, const Gradients& out) { return first_reason(p.judge(out)).empty(); }

// ---- the faults ----

const std::vector<Backward> fault_shapes = {
    shape(1, 2, 2, 48, 48, 32, true),
    shape(2, 3, 3, 41, 41, 32),
    shape(1, 4, 2, 40, 70, 64, true),
    shape(1, 6, 2, 21, 40, 64, true),
    shape(2, 4, 1, 23, 50, 40),
    shape(1, 2, 1, 70, 45, 64, true),
    shape(1, 6, 3, 37, 35, 32, true),
    shape(1, 2, 2, 60, 60, 32, true, 20),
    shape(1, 1, 1, 50, 50, 32, false, 13),
    shape(2, 4, 2, 45, 40, 40, true, 25),
    shape(1, 4, 4, 20, 9, 64, true),
    shape(1, 1, 1, 10, 60, 32, true, 9),
    shape(1, 2, 1, 8, 50, 64, false, 12),
    shape(1, 1, 1, 12, 70, 40, false, 5),
    shape(1, 2, 2, 6, 60, 32, false, 7),
    shape(3, 1, 1, 34, 33, 64),
    shape(1, 2, 1, 50, 37, 96, false, 0, -0.25f),
    shape(1, 1, 1, 100, 100, 32),
    shape(1, 2, 1, 80, 120, 32),
    shape(1, 1, 1, 97, 70, 64),
    shape(1, 2, 2, 66, 128, 40),
};

bool anywhere(const Backward&) { return true; }
bool causal(const Backward& s) { return s.causal && s.window == 0; }
bool edge_inside(const Backward& s) { return s.causal && s.seq_q > 1; }
bool long_sums(const Backward& s) { return std::min(s.seq_q, s.seq_k) > 64 && s.window == 0; }
bool not_bf16(const Backward& s) { return s.dtype != Dtype::bf16; }
bool several_tiles(const Backward& s) { return s.seq_k > 2 * tile && s.window == 0; }
bool shared_heads(const Backward& s) { return s.heads > s.kv_heads; }
bool has_empty_rows(const Backward& s) { return s.causal && s.seq_q > s.seq_k; }
bool has_unseen_keys(const Backward& s) { return s.window > 0 && s.seq_k > s.seq_q + s.window; }

struct FaultCase {
  Fault fault;
  const char* text;
  std::set<Which> rejected;  // all of these must be, where the fault shows
  std::function<bool(const Backward&)> changes_result = anywhere;
};

const std::vector<FaultCase> fault_cases = {
    {Fault::d_dropped, "D dropped", {dq_, dk_}},
    {Fault::d_of_wrong_row, "D of the next row", {dq_, dk_}},
    {Fault::p_into_dk, "P instead of dS into dK", {dk_}},
    {Fault::ds_into_dv, "dS instead of P into dV", {dv_}},
    {Fault::sign_of_dk, "dK with the wrong sign", {dk_}},
    {Fault::dq_without_scale, "dQ without the scale", {dq_}},
    {Fault::dk_without_scale, "dK without the scale", {dk_}},
    {Fault::scale_twice, "the scale twice", {dq_, dk_}},
    {Fault::dv_scaled, "dV scaled", {dv_}},
    {Fault::p_unnormalised, "P = exp(S - max)", {dq_, dk_, dv_}},
    {Fault::p_without_lse, "P = exp(S)", {dq_, dk_, dv_}},
    {Fault::lse_as_log2, "LSE taken as log2", {dq_, dk_, dv_}},
    {Fault::one_more, "causal: one key too many", {dq_, dk_, dv_}, causal},
    {Fault::one_more_in_dq, "causal: one key too many in dQ", {dq_}, causal},
    {Fault::one_more_in_dk, "causal: one key too many in dK", {dk_}, causal},
    {Fault::one_more_in_dv, "causal: one key too many in dV", {dv_}, causal},
    {Fault::one_less, "causal: one key too few", {dq_, dk_, dv_}, causal},
    {Fault::one_less_in_dq, "causal: one key too few in dQ", {dq_}, causal},
    {Fault::one_less_in_dk, "causal: one key too few in dK", {dk_}, causal},
    {Fault::one_less_in_dv, "causal: one key too few in dV", {dv_}, causal},
    {Fault::top_left, "causal: top-left", {dq_, dk_, dv_}, [](const Backward& s) { return causal(s) && s.seq_q != s.seq_k; }},
    {Fault::diagonal_dropped, "the diagonal dropped", {dq_, dk_, dv_}, edge_inside},
    {Fault::window_one_more, "window: one key too many", {dq_, dk_, dv_}, [](const Backward& s) { return s.window > 0; }},
    {Fault::last_queries_dropped_in_dk, "last query tile dropped in dK", {dk_}},
    {Fault::last_queries_dropped_in_dv, "last query tile dropped in dV", {dv_}},
    {Fault::last_keys_dropped_in_dq, "last key tile dropped in dQ", {dq_}, several_tiles},
    {Fault::heads_overwritten, "GQA heads overwritten, not summed", {dk_, dv_}, shared_heads},
    {Fault::dk_in_another_head, "dK of one head in another", {dk_}, [](const Backward& s) { return s.kv_heads > 1; }},
    {Fault::wrong_kv_head,
     "wrong KV head under GQA",
     {dq_, dk_, dv_},
     [](const Backward& s) { return s.kv_heads > 1 && shared_heads(s); }},
    {Fault::addition_lost, "one tile's addition to an element of dQ lost", {dq_}, several_tiles},
    {Fault::addition_lost_in_dk,
     "one tile's addition to an element of dK lost",
     {dk_},
     [](const Backward& s) { return !s.causal && s.window == 0; }},
    {Fault::tile_twice, "a tile added twice to dQ", {dq_}, several_tiles},
    {Fault::rows_of_dp_swapped, "rows of dO V^T swapped", {dq_, dk_}},
    {Fault::empty_rows_nan, "rows without keys: NaN", {dq_}, has_empty_rows},
    {Fault::unseen_keys_garbage, "keys that no query sees: not zero", {dv_}, has_unseen_keys},
    {Fault::padded_keys,
     "keys beyond seq_k not masked",
     {dq_, dk_, dv_},
     [](const Backward& s) { return s.seq_k % tile != 0 && s.window == 0; }},
    {Fault::padded_queries,
     "queries beyond seq_q not masked",
     {dk_, dv_},
     [](const Backward& s) { return s.seq_q % tile != 0; }},
    {Fault::first_batch_only,
     "K and V of batch entry 0 everywhere",
     {dq_, dk_, dv_},
     [](const Backward& s) { return s.batch > 1; }},
    {Fault::zeros_in_dq, "zeros in dQ", {dq_}},
    {Fault::zeros_in_dk, "zeros in dK", {dk_}},
    {Fault::zeros_in_dv, "zeros in dV", {dv_}},
    {Fault::late_element, "one element of the last key off by 10 %", {dk_}},
    {Fault::head_copied,
     "the first head's gradients as the last's",
     {dq_, dk_, dv_},
     [](const Backward& s) { return s.batch * s.kv_heads > 1; }},
    {Fault::last_calls_output, "the last call's output", {dq_, dk_, dv_}},
    {Fault::rounded_to_bf16, "rounded to bf16", {dq_, dk_, dv_}, not_bf16},
    {Fault::a_pair_of_100_left_out, "99 % of the keys, renormalised", {dq_, dk_, dv_}, several_tiles},
    {Fault::fp16_accumulation,
     "accumulation in fp16",
     {dq_, dk_, dv_},
     [](const Backward& s) { return not_bf16(s) && long_sums(s); }},  // a sum of fewer stays within the tolerance
    {Fault::unwritten_tail, "unwritten tail rows", {dq_}, [](const Backward& s) { return s.seq_q % 16 != 0; }},
};

bool same(const Gradients& a, const Gradients& b) {
  const auto bits = [](const Tensor& x, const Tensor& y) { return !check::first_difference(x.values, y.values).has_value(); };
  return bits(a.dq, b.dq) && bits(a.dk, b.dk) && bits(a.dv, b.dv);
}

// `every`: all dtypes at each shape; else one, by turns.
void reject_broken_kernels(bool every) {
  struct Entry {
    Problem problem;
    Gradients honest;
  };
  std::map<std::pair<std::size_t, Dtype>, std::unique_ptr<Entry>> entries;
  std::printf("%-46s rejected at (shape, dtype)  shapes  smallest error / allowed\n", "fault");
  for (const FaultCase& fault : fault_cases) {
    int tried = 0, rejected = 0;
    std::set<std::size_t> shapes;
    double closest = inf;
    for (std::size_t n = 0; n < fault_shapes.size(); ++n) {
      std::vector<std::size_t> changed;
      for (std::size_t t = 0; t < dtypes.size(); ++t) {
        Backward s = fault_shapes[n];
        s.dtype = dtypes[t];
        if (fault.changes_result(s)) changed.push_back(t);
      }
      if (!every && !changed.empty()) changed = {changed[(n + static_cast<std::size_t>(fault.fault)) % changed.size()]};
      for (const std::size_t t : changed) {
        auto& entry = entries[{n, dtypes[t]}];
        if (!entry) {
          Problem problem = make_problem(fault_shapes[n], dtypes[t]);
          entry = std::make_unique<Entry>(Entry{std::move(problem), {}});
          entry->honest = entry->problem.run();
          INFO("honest at " << entry->problem.text << ": " << first_reason(entry->problem.judge(entry->honest)));
          CHECK(accepts(entry->problem, entry->honest));
        }
        const bool is_late = fault.fault == Fault::last_calls_output;
        const Gradients broken =
            is_late ? make_problem(fault_shapes[n], dtypes[t], 2).run() : entry->problem.run({}, fault.fault);
        REQUIRE_FALSE(same(broken, entry->honest));
        const auto verdicts = entry->problem.judge(broken);
        INFO(fault.text << " at " << entry->problem.text);
        ++tried;
        bool all = true;
        for (const Which which : fault.rejected) {
          INFO(verdicts[which].name << ": worst ratio " << verdicts[which].worst_ratio);
          CHECK_FALSE(verdicts[which].pass);
          all &= !verdicts[which].pass;
          if (!std::isnan(verdicts[which].worst_ratio)) closest = std::min(closest, verdicts[which].worst_ratio);
        }
        rejected += all;
        shapes.insert(n);
      }
    }
    std::printf("%-46s %12d of %-3d %17zu %16.3g\n", fault.text, rejected, tried, shapes.size(), closest);
    INFO(fault.text);
    CHECK(shapes.size() >= 4);
  }
}

}  // namespace

TEST_CASE("every broken backward pass is rejected wherever its fault changes the result, and the honest one accepted") {
  reject_broken_kernels(false);
}
TEST_CASE("every broken backward pass is rejected in every type", "[.long]") { reject_broken_kernels(true); }

// ---- what must be accepted ----

namespace {

const Choices honest_choices[] = {
    {},
    {.last_dim_first = true, .last_key_first = true, .last_query_first = true},
    {.last_query_first = true, .exp2 = true, .scale_in_ds = true},
    {.last_dim_first = true, .last_key_first = true, .exp2 = true, .d_from_p = true},
    {.last_key_first = true, .ds_from_rounded = true},
};

struct Lengths {
  int seq_q, seq_k;
};
constexpr Lengths lengths[] = {{1, 1},   {1, 3},   {3, 1},   {5, 5},   {17, 17}, {64, 64}, {32, 64},  {97, 97},
                               {60, 90}, {90, 60}, {239, 1}, {1, 300}, {65, 63}, {7, 128}, {128, 128}};
struct Heads {
  int batch, heads, kv_heads;
};
constexpr Heads head_counts[] = {{1, 1, 1}, {1, 3, 3}, {1, 14, 2}, {3, 1, 1}, {1, 4, 1}};
constexpr int dims[] = {32, 64, 128, 40, 96};
constexpr InputKind kinds[] = {InputKind::normal, InputKind::large, InputKind::one_hot, InputKind::uniform};

struct Acceptance {
  int problems = 0, verdicts = 0, rejections = 0, exempt = 0, rows = 0;
  double worst = 0, worst_mean = 0;
  void add(const Problem& p, const Gradients& out, const char* who, std::size_t choice) {
    const auto judged = p.judge(out);
    INFO(who << " " << choice << " at " << p.text << ": " << first_reason(judged));
    CHECK(first_reason(judged).empty());
    ++verdicts;
    rejections += !first_reason(judged).empty();
    for (int t = 0; t < 3; ++t) {
      worst = std::max(worst, judged[t].worst_ratio);
      if (judged[t].mean_allowed > 0) worst_mean = std::max(worst_mean, judged[t].mean_error / judged[t].mean_allowed);
      exempt += static_cast<int>(judged[t].rows_exempt);
      rows += static_cast<int>(judged[t].rows_exempt + judged[t].rows_checked);
    }
  }
};

Gradients baseline_of(const Problem& p) {
  const auto spec = run::spec_of(p.a);
  auto grad =
      reference::backward_baseline(spec, reference::all_backward_rows(spec), p.in.q.values, p.in.k.values, p.in.v.values,
                                   p.in.d_o.values, p.in.o.values, p.in.lse.values, run::round_to_dtype(p.a.dtype));
  Gradients out{Tensor(p.in.q.shape), Tensor(p.in.k.shape), Tensor(p.in.v.shape)};
  out.dq.values = std::move(grad.dq);
  out.dk.values = std::move(grad.dk);
  out.dv.values = std::move(grad.dv);
  return out;
}

void accept_honest_kernels(std::size_t first_seed, std::size_t last_seed) {
  std::map<std::string, Acceptance> tallies;
  for (std::size_t seed = first_seed; seed <= last_seed; ++seed) {
    for (std::size_t n = 0; n < 2 * std::size(lengths); ++n) {
      const auto [seq_q, seq_k] = lengths[n / 2];
      const auto [batch, heads, kv_heads] = head_counts[(n / 2 + seed) % std::size(head_counts)];
      const bool big = batch * heads * seq_q * seq_k > 12000;
      const int dim = big ? 32 : dims[(n / 2 + seed * 3) % std::size(dims)];
      const Dtype dtype = dtypes[(n + seed) % dtypes.size()];
      const InputKind kind = kinds[(n + n / 4 + seed) % std::size(kinds)];
      const Problem p = make_problem(shape(batch, heads, kv_heads, seq_q, seq_k, dim, n % 2 == 1), dtype, seed, kind);
      Acceptance& tally = tallies[std::string(problem::name(dtype)) + ", kind " + std::to_string(static_cast<int>(kind))];
      ++tally.problems;
      tally.add(p, baseline_of(p), "baseline", 0);
      for (const std::size_t c : {n % std::size(honest_choices), (n + 1 + seed) % std::size(honest_choices)}) {
        tally.add(p, p.run(honest_choices[c]), "choice", c);
      }
    }
  }
  std::printf("%-16s problems  rejected  worst error / allowed  mean  rows exempt\n", "honest");
  for (const auto& [text, t] : tallies) {
    std::printf("%-16s %8d %3d of %3d %20.2f %8.2f %d of %d\n", text.c_str(), t.problems, t.rejections, t.verdicts, t.worst,
                t.worst_mean, t.exempt, t.rows);
    CHECK(t.exempt == 0);
  }
}

}  // namespace

TEST_CASE("honest backward passes are accepted: every length, dtype and kind of input, other orders of summation") {
  accept_honest_kernels(1, 1);
}
TEST_CASE("honest backward passes are accepted under eleven seeds more", "[.long]") { accept_honest_kernels(2, 12); }

// ---- the ends of what numbers can be ----

namespace {

void change(Tensor& tensor, Dtype dtype, const std::function<float(float)>& by) {
  for (float& x : tensor.values) x = problem::round_to(dtype, by(x));
}

// Each row holds what belongs to the one after it; the last, what belongs to the first.
Tensor shifted(Tensor y) {
  std::rotate(y.values.begin(), y.values.begin() + y.shape.back(), y.values.end());
  return y;
}

Tensor& tensor_of(Gradients& out, int which) { return which == dq_ ? out.dq : which == dk_ ? out.dk : out.dv; }

struct Scaling {
  const char* text;
  bool fp16;  // its numbers are within fp16
  Tensor BackwardInputs::*tensor;
  float factor = 1;
  float offset = 0;
};
const Scaling scalings[] = {
    {"as they are", true, &BackwardInputs::q},
    {"V around 0", true, &BackwardInputs::v, 1, -0.5f},
    {"Q times 30", true, &BackwardInputs::q, 30},
    {"K times 1e-6", false, &BackwardInputs::k, 1e-6f},
    {"V times 1e3", true, &BackwardInputs::v, 1e3f},
    {"V times 1e6", false, &BackwardInputs::v, 1e6f},
    {"dO times 1e3", true, &BackwardInputs::d_o, 1e3f},
    {"dO times 1e-3", true, &BackwardInputs::d_o, 1e-3f},
    {"dO times 1e-12", false, &BackwardInputs::d_o, 1e-12f},
    {"dO times 1e12", false, &BackwardInputs::d_o, 1e12f},
    {"Q + 100", true, &BackwardInputs::q, 1, 100},
    {"K + 100", true, &BackwardInputs::k, 1, 100},
    {"V + 100", true, &BackwardInputs::v, 1, 100},
    {"dO + 100", true, &BackwardInputs::d_o, 1, 100},
    {"K + 1e3", true, &BackwardInputs::k, 1, 1e3f},
    {"V + 1e3", true, &BackwardInputs::v, 1, 1e3f},
};

Problem scaled_problem(Backward a, Dtype dtype, const Scaling& scaling) {
  a.dtype = dtype;
  a = problem::resolve(a);
  BackwardInputs in = problem::make_inputs(a, 3);
  change(in.*scaling.tensor, dtype, [&](float x) { return scaling.factor * x + scaling.offset; });
  return with_truth(a, std::move(in), std::string(", ") + scaling.text);
}

// The smallest share by which one tensor of an honest result may be scaled towards zero and be rejected; 1 are all zeros.
double smallest_rejected(const Problem& p, const Gradients& honest, int which) {
  const auto passes = [&](double share) {
    Gradients out = honest;
    change(tensor_of(out, which), p.a.dtype, [&](float x) { return static_cast<float>(x * (1 - share)); });
    return p.judge(out)[which].pass;
  };
  if (passes(1)) return inf;
  double accepted = 0, rejected = 1;
  for (int step = 0; step < 24; ++step) {
    const double middle = accepted == 0 && step < 12 ? rejected / 4 : (accepted + rejected) / 2;
    (passes(middle) ? accepted : rejected) = middle;
  }
  return rejected;
}

}  // namespace

TEST_CASE("scaled and offset inputs: honest gradients are accepted; zeros, constants and the next row's gradients are not") {
  for (const Dtype dtype : dtypes) {
    for (const Backward& s : {shape(1, 2, 1, 20, 40, 64), shape(1, 1, 1, 33, 33, 32, true), shape(1, 1, 1, 7, 90, 64)}) {
      for (const Scaling& scaling : scalings) {
        if (dtype == Dtype::fp16 && !scaling.fp16) continue;
        const Problem p = scaled_problem(s, dtype, scaling);
        const Gradients honest = p.run();
        INFO(p.text);
        for (const Choices& choices : {honest_choices[0], honest_choices[1], honest_choices[3]}) {
          const auto verdicts = p.judge(p.run(choices));
          INFO(first_reason(verdicts));
          CHECK(first_reason(verdicts).empty());
          CHECK(verdicts[dq_].rows_exempt + verdicts[dk_].rows_exempt + verdicts[dv_].rows_exempt == 0);
        }
        // In steps of the dtype that are as large as they differ, all keys are alike.
        if (scaling.tensor == &BackwardInputs::k && check::ulp(dtype, scaling.offset) > 1) continue;
        for (const int which : {dq_, dk_, dv_}) {
          Gradients out = honest;
          Tensor& changed = tensor_of(out, which);
          const Tensor right = changed;
          const auto passes = [&](Tensor wrong) {
            changed = std::move(wrong);
            return p.judge(out)[which].pass;
          };
          INFO("tensor " << which);
          CHECK_FALSE(passes(Tensor(right.shape)));
          CHECK_FALSE(passes(Tensor(right.shape, right.values[right.values.size() / 2])));
          const bool keys_alike = scaling.tensor == &BackwardInputs::k && scaling.factor < 1;  // P is 1 / keys
          CHECK(passes(shifted(right)) == (keys_alike && which == dv_ && !s.causal));
        }
      }
    }
  }
}

TEST_CASE("the smallest error of gradients that is rejected", "[.long]") {
  std::printf("| dtype | inputs | dQ | dK | dV |\n|---|---|---|---|---|\n");
  for (const Dtype dtype : dtypes) {
    for (const Scaling& scaling : scalings) {
      if (dtype == Dtype::fp16 && !scaling.fp16) continue;
      const Problem p = scaled_problem(shape(1, 1, 1, 20, 40, 64), dtype, scaling);
      const Gradients honest = p.run();
      std::printf("| %s | %s |", std::string(problem::name(dtype)).c_str(), scaling.text);
      for (const int which : {dq_, dk_, dv_}) {
        const double share = smallest_rejected(p, honest, which);
        std::printf(" %.1e |", share);
        CHECK(share < 1);
      }
      std::printf("\n");
    }
  }
}

TEST_CASE(
    "extreme scales, one key, one query, one column: honest gradients are accepted, zeros where they matter and NaN not") {
  for (const Dtype dtype : dtypes) {
    for (const float scale : {0.0f, 1e-45f, -1e-38f, -0.5f, 1.0f, 100.0f}) {
      for (const auto& [seq_q, seq_k, dim] :
           {std::array{1, 1, 1}, {1, 40, 1}, {5, 1, 64}, {1, 40, 64}, {40, 5, 1}, {9, 30, 64}}) {
        for (const float factor : {1e-30f, 1.0f, 1e3f}) {
          if (dtype == Dtype::fp16 && factor < 1) continue;
          Backward a = shape(1, 1, 1, seq_q, seq_k, dim, seq_q > seq_k, 0, scale);
          a.dtype = dtype;
          a = problem::resolve(a);
          BackwardInputs in = problem::make_inputs(a, 9);
          for (Tensor* x : {&in.v, &in.d_o}) change(*x, dtype, [&](float y) { return factor * y; });
          const Problem p = with_truth(a, std::move(in));
          const Gradients honest = p.run();
          INFO(p.text << ", scale " << scale << ", V and dO times " << factor);
          for (const Choices& choices : {honest_choices[0], honest_choices[1], honest_choices[3]}) {
            // scale · log2 e of the smallest numbers is rounded to another
            if (choices.exp2 && std::abs(scale) < 1e-37f) continue;
            INFO(first_reason(p.judge(p.run(choices))));
            CHECK(accepts(p, p.run(choices)));
          }
          for (const int which : {dq_, dk_, dv_}) {
            INFO("tensor " << which);
            Gradients out = honest;
            tensor_of(out, which).values.back() = not_a_number;
            const bool overflows = dtype == Dtype::fp16 && factor > 1;
            if (!overflows) CHECK_FALSE(accepts(p, out));
            tensor_of(out, which).values.back() = check::poison_value(dtype);
            CHECK_FALSE(accepts(p, out));
          }
          if (factor == 1 && seq_k > 1 && std::abs(scale) >= 0.5f && std::abs(scale) <= 1) {
            for (const int which : {dq_, dk_, dv_}) {
              Gradients out = honest;
              tensor_of(out, which) = Tensor(tensor_of(out, which).shape);
              CHECK_FALSE(accepts(p, out));
            }
          }
        }
      }
    }
  }
}

// ---- NaN, infinities, overflow ----

namespace {

// Six queries over 40 keys, causal, two heads over one: queries 3 to 5 see key 37.
struct Case {
  Backward a;
  BackwardInputs in;
  explicit Case(Dtype dtype) : a(shape(1, 2, 1, 6, 40, 16, true)) {
    a.dtype = dtype;
    a = problem::resolve(a);
    in = problem::make_inputs(a, 5);
  }
  Problem problem() const { return with_truth(a, in); }
};

// Whether an honest result is accepted with another value at [row, d] of a tensor.
bool passes_with(const Problem& p, const Gradients& honest, Which which, int row, int d, float value) {
  Gradients out = honest;
  tensor_of(out, which).values[row * p.a.dim + d] = value;
  return p.judge(out)[which].pass;
}

}  // namespace

TEST_CASE("NaN in the inputs: what depends on it is NaN or infinite, of either sign, and all else is compared") {
  for (const Dtype dtype : dtypes) {
    for (const float bad : {not_a_number, inf, -inf}) {
      Case c(dtype);
      c.in.v.values[37 * 16 + 4] = bad;
      const Problem p = c.problem();
      const Gradients honest = p.run();
      INFO(first_reason(p.judge(honest)));
      CHECK(accepts(p, honest));
      CHECK(p.judge(honest)[dq_].rows_exempt + p.judge(honest)[dk_].rows_exempt + p.judge(honest)[dv_].rows_exempt == 0);
      for (const float value : {not_a_number, inf, -inf}) {
        CHECK(passes_with(p, honest, dq_, 3, 0, value));
        CHECK(passes_with(p, honest, dk_, 0, 7, value));         // through D of queries 3 to 5
        CHECK_FALSE(passes_with(p, honest, dq_, 2, 0, value));   // does not see key 37
        CHECK_FALSE(passes_with(p, honest, dv_, 37, 4, value));  // V is not in dV
        CHECK_FALSE(passes_with(p, honest, dv_, 0, 4, value));
      }
      for (const float value : {0.0f, 1.0f}) {
        CHECK_FALSE(passes_with(p, honest, dq_, 3, 0, value));
        CHECK_FALSE(passes_with(p, honest, dk_, 0, 7, value));
        CHECK_FALSE(passes_with(p, honest, dq_, 2, 0, value + 5));
        CHECK_FALSE(passes_with(p, honest, dv_, 37, 4, value + 5));
      }
    }
    Case c(dtype);
    c.in.d_o.values[4 * 16 + 3] = not_a_number;
    const Problem p = c.problem();
    const Gradients honest = p.run();
    CHECK(accepts(p, honest));
    CHECK_FALSE(passes_with(p, honest, dv_, 38, 3, 0));             // query 4 sees it
    CHECK_FALSE(passes_with(p, honest, dv_, 38, 2, not_a_number));  // another column
    CHECK_FALSE(passes_with(p, honest, dv_, 39, 3, not_a_number));  // seen by query 5 alone
    CHECK_FALSE(passes_with(p, honest, dk_, 39, 3, not_a_number));
    CHECK_FALSE(passes_with(p, honest, dk_, 38, 2, 0));
    CHECK_FALSE(passes_with(p, honest, dq_, 5, 3, not_a_number));
  }
}

TEST_CASE("scores of −∞, of some keys and of all: those rows add nothing, and NaN from −∞ − (−∞) is rejected") {
  for (const Dtype dtype : dtypes) {
    Case c(dtype);
    for (std::int64_t row = 0; row < 12; ++row) c.in.q.values[row * 16] = 1;
    for (const int key : {5, 38}) c.in.k.values[key * 16] = -inf;
    c.in.q.values[2 * 16] = inf;  // head 0, query 2: its scores are infinite of either sign, or NaN
    c.in.q.values[3 * 16] = 0;    // 0 · ∞
    for (int j = 0; j < 40; ++j) c.in.k.values[j * 16 + 1] = 1;
    c.in.q.values[4 * 16 + 1] = -inf;  // all its scores are −∞
    const Problem p = c.problem();
    CHECK(p.in.lse.values[4] == -inf);
    CHECK(std::isnan(p.in.lse.values[2]));
    const Gradients honest = p.run();
    INFO(first_reason(p.judge(honest)));
    CHECK(accepts(p, honest));
    CHECK_FALSE(passes_with(p, honest, dq_, 4, 5, 1));
    CHECK_FALSE(passes_with(p, honest, dq_, 0, 5, not_a_number));   // but for its element 0
    CHECK_FALSE(passes_with(p, honest, dq_, 0, 0, 0));              // 0 · ∞
    CHECK_FALSE(passes_with(p, honest, dv_, 39, 5, not_a_number));  // seen by queries 5 alone
    CHECK_FALSE(passes_with(p, honest, dv_, 0, 5, 0));
  }
  Case c(Dtype::fp32);  // all −∞ by finite queries: only a guard keeps NaN out
  for (std::int64_t row = 0; row < 12; ++row) c.in.q.values[row * 16] = 1;
  for (int j = 0; j < 40; ++j) c.in.k.values[j * 16] = -inf;
  const Problem p = c.problem();
  const Gradients honest = p.run();
  INFO(first_reason(p.judge(honest)));
  CHECK(accepts(p, honest));
  CHECK(passes_with(p, honest, dq_, 1, 0, not_a_number));  // 0 · ∞, or nothing
  CHECK_FALSE(passes_with(p, honest, dv_, 1, 0, not_a_number));
  CHECK_FALSE(passes_with(p, honest, dk_, 1, 0, not_a_number));
  CHECK_FALSE(passes_with(p, honest, dk_, 1, 0, 1));
}

TEST_CASE("where dS is beyond fp16 rows may be infinite, as truth decides; no other row may, whatever the baseline does") {
  Case c(Dtype::fp16);
  for (int d = 0; d < 16; ++d) {
    c.in.d_o.values[3 * 16 + d] = c.in.v.values[37 * 16 + d] = 300;  // dP = 1.4e6, of query 3 alone
    c.in.q.values[3 * 16 + d] = c.in.k.values[37 * 16 + d] = d % 2 == 0 ? 0.5f : -0.5f;
  }
  const Problem p = c.problem();
  const Gradients honest = p.run();
  INFO(first_reason(p.judge(honest)));
  CHECK(accepts(p, honest));
  CHECK_FALSE(std::isfinite(honest.dq.values[3 * 16]));
  const auto verdicts = p.judge(honest);
  CHECK(verdicts[dq_].rows_exempt + verdicts[dk_].rows_exempt + verdicts[dv_].rows_exempt == 0);
  for (const float value : {inf, -inf, not_a_number}) {
    CHECK(passes_with(p, honest, dq_, 3, 5, value));
    CHECK_FALSE(passes_with(p, honest, dq_, 2, 5, value));
    CHECK_FALSE(passes_with(p, honest, dq_, 4, 5, value));
    CHECK(passes_with(p, honest, dk_, 37, 5, value));
    CHECK_FALSE(passes_with(p, honest, dk_, 38, 5, value));
    CHECK_FALSE(passes_with(p, honest, dv_, 37, 5, value));
  }
  CHECK_FALSE(passes_with(p, honest, dq_, 3, 5, 0));  // where it is finite it must be right
  CHECK_FALSE(passes_with(p, honest, dq_, 2, 5, 3));
  CHECK_FALSE(passes_with(p, honest, dk_, 38, 5, 3));
}

TEST_CASE("the largest numbers: rows whose sums may overflow are infinite or right, −FLT_MAX among the scores takes no part") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const float most = problem::round_to(dtype, 3.3e38f);
    Case c(dtype);
    c.in.v.values[37 * 16 + 4] = most;
    const Problem p = c.problem();
    const Gradients honest = p.run();
    INFO(first_reason(p.judge(honest)));
    CHECK(accepts(p, honest));
    CHECK_FALSE(passes_with(p, honest, dq_, 2, 0, inf));
    CHECK_FALSE(passes_with(p, honest, dv_, 37, 4, inf));

    Case low(dtype);
    for (std::int64_t row = 0; row < 12; ++row) low.in.q.values[row * 16] = 1;
    low.in.k.values[20 * 16] = -most;  // P = 0, and 0 · 3.3e38 is 0
    const Problem masked = low.problem();
    const Gradients right = masked.run();
    const auto verdicts = masked.judge(right);
    INFO(first_reason(verdicts));
    CHECK(first_reason(verdicts).empty());
    CHECK_FALSE(passes_with(masked, right, dv_, 20, 3, 0.01f));
    CHECK_FALSE(passes_with(masked, right, dq_, 3, 3, right.dq.values[3 * 16 + 3] + 1));
  }
}

// ---- what is given, what is exempt ----

TEST_CASE("a wrong O or LSE is rejected, whatever the gradients made of it") {
  for (const Dtype dtype : dtypes) {
    Backward a = shape(1, 2, 1, 20, 40, 32);
    a.dtype = dtype;
    a = problem::resolve(a);
    BackwardInputs in = problem::make_inputs(a, 2);
    attend(a, in);
    const auto reason_of = [&](const BackwardInputs& given) {
      const run::BackwardTruth truth(a, given);
      const Gradients out = Kernel(a, given).run();
      const auto verdicts = truth.judge(out.dq, out.dk, out.dv);
      REQUIRE(verdicts.size() == 5);
      return std::pair(verdicts[3].pass, verdicts[4].pass);
    };
    CHECK(reason_of(in) == std::pair(true, true));
    BackwardInputs wrong = in;
    for (float& x : wrong.lse.values) x *= log2_e;
    CHECK(reason_of(wrong) == std::pair(true, false));
    wrong = in;
    wrong.o.values[5 * 32] *= 1.2f;
    CHECK(reason_of(wrong) == std::pair(false, true));
    wrong.o.values[5 * 32] = wrong.lse.values[7] = not_a_number;
    CHECK(reason_of(wrong) == std::pair(false, false));
    wrong.lse = Tensor();
    CHECK_THROWS_AS(reason_of(wrong), std::invalid_argument);
  }
}

TEST_CASE("O and LSE at the edge of what is accepted: gradients made from them are accepted, and zeros are not") {
  for (const Dtype dtype : dtypes) {
    Backward a = shape(1, 2, 1, 30, 50, 64, true);
    a.dtype = dtype;
    a = problem::resolve(a);
    BackwardInputs in = problem::make_inputs(a, 2);
    attend(a, in);
    int turn = 0;
    for (float& x : in.o.values) x += (turn++ % 3 == 0 ? 1.0f : -0.5f) * static_cast<float>(check::ulp(dtype, x));
    for (float& x : in.lse.values) x += dtype == Dtype::fp32 ? 9e-6f * std::max(1.0f, std::abs(x)) : 9e-4f;
    for (float& x : in.o.values) x = problem::round_to(dtype, x);
    const Problem p{a, in, std::make_unique<run::BackwardTruth>(a, in), problem::to_string(a)};
    for (const Choices& choices : honest_choices) {
      if (choices.d_from_p) continue;  // from a sum of P that is no longer 1
      INFO(p.text << ": " << first_reason(p.judge(p.run(choices))));
      CHECK(accepts(p, p.run(choices)));
    }
    for (const Fault fault :
         {Fault::zeros_in_dq, Fault::zeros_in_dk, Fault::zeros_in_dv, Fault::d_dropped, Fault::late_element}) {
      CHECK_FALSE(accepts(p, p.run({}, fault)));
    }
  }
}

TEST_CASE("scores to 300, one-hot and uniform rows: zeros and other faults are rejected where the gradient is not zero") {
  for (const Dtype dtype : dtypes) {
    for (const auto& [kind, faults] : std::vector<std::pair<InputKind, std::vector<Fault>>>{
             {InputKind::large,
              {Fault::zeros_in_dq, Fault::zeros_in_dk, Fault::zeros_in_dv, Fault::d_dropped, Fault::dk_without_scale,
               Fault::p_into_dk, Fault::one_less_in_dv, Fault::heads_overwritten, Fault::rows_of_dp_swapped}},
             {InputKind::one_hot, {Fault::zeros_in_dv, Fault::d_dropped, Fault::p_into_dk, Fault::heads_overwritten}},
             {InputKind::uniform, {Fault::zeros_in_dk, Fault::zeros_in_dv, Fault::d_dropped, Fault::one_more_in_dk}}}) {
      for (const Backward& s : {shape(1, 2, 1, 40, 40, 64, true), shape(1, 4, 2, 33, 60, 32, true)}) {
        const Problem p = make_problem(s, dtype, 4, kind);
        for (const Fault fault : faults) {
          INFO(p.text << ", fault " << static_cast<int>(fault));
          CHECK_FALSE(accepts(p, p.run({}, fault)));
        }
      }
    }
  }
}

TEST_CASE("thousands of keys or queries: P below fp16's normal numbers is no fault, a lost tile is one") {
  for (const Dtype dtype : dtypes) {
    for (const Backward& s : {shape(1, 1, 1, 3, 6000, 16), shape(1, 1, 1, 3000, 5, 16)}) {
      const Problem p = make_problem(s, dtype, 6, InputKind::normal);
      for (const Choices& choices : {honest_choices[0], honest_choices[1], honest_choices[2]}) {
        INFO(p.text << ": " << first_reason(p.judge(p.run(choices))));
        CHECK(accepts(p, p.run(choices)));
      }
      CHECK_FALSE(accepts(p, p.run({}, Fault::d_dropped)));
      CHECK_FALSE(accepts(p, p.run({}, Fault::dq_without_scale)));
    }
  }
}

TEST_CASE("rows whose scores are rounded by more than P can bear are exempt, counted, and must be written") {
  Case c(Dtype::fp32);
  for (int d = 0; d < 16; ++d) c.in.q.values[4 * 16 + d] *= 1e7f;
  const Problem p = c.problem();
  const Gradients honest = p.run();
  const auto verdicts = p.judge(honest);
  INFO(first_reason(verdicts));
  CHECK(first_reason(verdicts).empty());
  CHECK(verdicts[dq_].rows_exempt == 1);
  CHECK(verdicts[dk_].rows_exempt == verdicts[dv_].rows_exempt);
  CHECK(verdicts[dv_].rows_exempt >= 1);  // keys that may have won
  CHECK(verdicts[dv_].rows_exempt < 10);
  CHECK(passes_with(p, honest, dq_, 4, 0, 77));
}

TEST_CASE("of a large problem rows are sampled: faults in them are found, and all others must be written and finite",
          "[.long]") {
  const Problem p = make_problem(shape(1, 4, 1, 2000, 1300, 64, true), Dtype::bf16);
  const Gradients honest = p.run();
  const auto verdicts = p.judge(honest);
  INFO(first_reason(verdicts));
  CHECK(first_reason(verdicts).empty());
  CHECK(verdicts[dq_].rows_checked == 4 * 64);
  CHECK(verdicts[dk_].rows_checked == 64);
  for (const auto& [which, rows] : {std::pair(dq_, 8000), {dk_, 1300}, {dv_, 1300}}) {
    CHECK_FALSE(passes_with(p, honest, which, rows - 1, 3, 9));
    for (int row = 11; row < rows; row += 97) {
      CHECK_FALSE(passes_with(p, honest, which, row, 3, check::poison_value(Dtype::bf16)));
      CHECK_FALSE(passes_with(p, honest, which, row, 3, not_a_number));
    }
  }
  CHECK_FALSE(passes_with(p, honest, dq_, 11, 3, 1e-6f));  // sees no key
  CHECK_FALSE(accepts(p, p.run({}, Fault::scale_twice)));
  CHECK_FALSE(accepts(p, p.run({}, Fault::heads_overwritten)));
}
