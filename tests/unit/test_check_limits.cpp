// The checker at the ends of what numbers can be: inputs far from zero, scaled by a million, of very different sizes, infinite,
// NaN, next to the dtype's largest number. Zeros, constants and other rows' outputs must be rejected there too, and what the
// contract asks of NaN and infinity must be found where it is asked, and nowhere else.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "common/run/family/attention_truth.h"
#include "common/run/family/gemm_truth.h"
#include "common/run/family/softmax_truth.h"
#include "tests/catch.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;
using problem::Gemm;
using problem::GemmInputs;
using problem::Softmax;
using problem::Tensor;

constexpr float inf = INFINITY;
const float not_a_number = std::nanf("");
constexpr float log2_e = 1.44269504088896341f;
constexpr Dtype dtypes[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

float largest_number(Dtype dtype) { return dtype == Dtype::fp32 ? FLT_MAX : dtype == Dtype::fp16 ? 65504.0f : 3.3895314e38f; }

std::int64_t rows_of(const Tensor& tensor) { return std::ssize(tensor.values) / tensor.shape.back(); }

// Each row holds what belongs to the one after it; the last, what belongs to the first.
Tensor shifted(Tensor y) {
  std::rotate(y.values.begin(), y.values.begin() + y.shape.back(), y.values.end());
  return y;
}

// Whether the two differ by more than 1 % of the largest number in some row.
bool differ(const Tensor& a, const Tensor& b) {
  const std::int64_t cols = a.shape.back();
  for (std::int64_t row = 0; row < rows_of(a); ++row) {
    float difference = 0, largest = 0;
    for (std::int64_t i = row * cols; i < (row + 1) * cols; ++i) {
      difference = std::max(difference, std::abs(a.values[i] - b.values[i]));
      largest = std::max(largest, std::abs(a.values[i]));
    }
    if (difference > 0.01f * largest) return true;
  }
  return false;
}

// ---- row softmax ----

enum class Way { difference, fused, parts };

// Honest: the maximum subtracted; one FMA against the scaled maximum; halves with maxima of their own, merged.
Tensor softmax(const Softmax& s, const Tensor& x, Way way) {
  Tensor y({s.rows, s.cols});
  for (int row = 0; row < s.rows; ++row) {
    const float* x_row = &x.values[std::int64_t{row} * s.cols];
    const int half = way == Way::parts ? s.cols / 2 : s.cols;
    const auto part = [&](int begin, int end, float& m, float& l) {
      m = -inf;
      l = 0;
      for (int j = begin; j < end; ++j) m = std::fmax(m, x_row[j]);
      const float subtracted = m == -inf ? 0 : m;
      for (int j = begin; j < end; ++j) l += std::exp(x_row[j] - subtracted);
    };
    const float largest = *std::max_element(x_row, x_row + s.cols);
    float m1, l1, m2, l2;
    part(0, half, m1, l1);
    part(half, s.cols, m2, l2);
    const float m = std::fmax(m1, m2), safe = m == -inf ? 0 : m;
    float l = l1 * std::exp(m1 - safe) + l2 * std::exp(m2 - safe);
    const auto fused = [&](float score) { return std::exp2(std::fma(score, log2_e, -(largest * log2_e))); };
    if (way == Way::fused) {  // 32 lanes
      float lanes[32] = {};
      for (int j = 0; j < s.cols; ++j) lanes[j % 32] += fused(x_row[j]);
      l = 0;
      for (const float lane : lanes) l += lane;
    }
    const float inverse = l == 0 ? 0 : 1 / l;
    for (int j = 0; j < s.cols; ++j) {
      const float e = way == Way::fused ? fused(x_row[j]) : std::exp(x_row[j] - safe);
      y.values[std::int64_t{row} * s.cols + j] = problem::round_to(s.dtype, e * inverse);
    }
  }
  return y;
}

// Scores some steps of the dtype around the offset; near ones compete, far ones leave a winner in each row.
Tensor scores_at(const Softmax& s, float offset) {
  Tensor x = problem::make_inputs(s, 7);
  const auto step = static_cast<float>(check::ulp(s.dtype, offset));
  for (float& score : x.values) score = problem::round_to(s.dtype, offset + std::max(step, 1.0f) * std::round(score));
  return x;
}

// ---- attention ----

struct Result {
  Tensor o, lse;
};

// A flash attention in the dtype, as kernels are: fp32 sums in their own order, base 2, tiles of 16 keys, P rounded undivided.
Result flash(const Attention& a, const AttentionInputs& in) {
  Result result{Tensor({a.batch, a.heads, a.seq_q, a.dim}), Tensor({a.batch, a.heads, a.seq_q})};
  const float scale = *a.scale * log2_e;
  for (int head = 0; head < a.batch * a.heads; ++head) {
    const std::int64_t kv = std::int64_t{head / a.heads} * a.kv_heads + head % a.heads / (a.heads / a.kv_heads);
    for (int i = 0; i < a.seq_q; ++i) {
      const std::int64_t row = std::int64_t{head} * a.seq_q + i;
      float m = -inf, l = 0;
      std::vector<float> o(a.dim, 0.0f);
      for (int first = a.first_key(i); first < a.last_key(i); first += 16) {
        const int end = std::min(first + 16, a.last_key(i));
        std::vector<float> s;
        float above = m;
        for (int j = first; j < end; ++j) {
          float sum = 0;
          for (int d = a.dim - 1; d >= 0; --d)
            sum += in.q.values[row * a.dim + d] * in.k.values[(kv * a.seq_k + j) * a.dim + d];
          s.push_back(sum * scale);
          above = std::fmax(above, s.back());
        }
        const float subtracted = above == -inf ? 0 : above, factor = std::exp2(m - subtracted);
        m = above;
        l *= factor;
        for (float& x : o) x *= factor;
        for (int j = first; j < end; ++j) {
          const float p = std::exp2(s[j - first] - subtracted), rounded = problem::round_to(a.dtype, p);
          l += p;
          for (int d = 0; d < a.dim; ++d) o[d] += rounded * in.v.values[(kv * a.seq_k + j) * a.dim + d];
        }
      }
      const float inverse = l == 0 ? 0 : 1 / l;
      for (int d = 0; d < a.dim; ++d) result.o.values[row * a.dim + d] = problem::round_to(a.dtype, o[d] * inverse);
      result.lse.values[row] = l == 0 ? -inf : m / log2_e + std::log(l);
    }
  }
  return result;
}

void change(Tensor& tensor, Dtype dtype, const std::function<float(float)>& by) {
  for (float& x : tensor.values) x = problem::round_to(dtype, by(x));
}

// The mean of V over all keys, in every row.
Tensor mean_of_v(const Attention& a, const AttentionInputs& in) {
  Tensor o({a.batch, a.heads, a.seq_q, a.dim});
  for (std::int64_t row = 0; row < rows_of(o); ++row) {
    const std::int64_t kv = row / a.seq_q / a.heads * a.kv_heads + row / a.seq_q % a.heads / (a.heads / a.kv_heads);
    for (int d = 0; d < a.dim; ++d) {
      double sum = 0;
      for (int j = 0; j < a.seq_k; ++j) sum += in.v.values[(kv * a.seq_k + j) * a.dim + d];
      o.values[row * a.dim + d] = problem::round_to(a.dtype, static_cast<float>(sum / a.seq_k));
    }
  }
  return o;
}

struct Scaling {
  const char* text;
  bool fp16;  // its numbers are within fp16
  std::function<void(AttentionInputs&, Dtype)> apply;
  float k_offset = 0;  // added to K
};
const Scaling scalings[] = {
    {"as they are", true, [](AttentionInputs&, Dtype) {}},
    {"V around 0", true, [](AttentionInputs& in, Dtype t) { change(in.v, t, [](float x) { return x - 0.5f; }); }},
    {"Q and K times 30", true,
     [](AttentionInputs& in, Dtype t) {
       for (Tensor* x : {&in.q, &in.k}) change(*x, t, [](float y) { return 30 * y; });
     }},
    {"Q and K times 1e3", true,
     [](AttentionInputs& in, Dtype t) {
       for (Tensor* x : {&in.q, &in.k}) change(*x, t, [](float y) { return 1e3f * y; });
     }},
    {"Q and K times 1e6", false,
     [](AttentionInputs& in, Dtype t) {
       for (Tensor* x : {&in.q, &in.k}) change(*x, t, [](float y) { return 1e6f * y; });
     }},
    {"K + 1e3", true, [](AttentionInputs& in, Dtype t) { change(in.k, t, [](float x) { return x + 1e3f; }); }, 1e3f},
    {"K + 1e5", false, [](AttentionInputs& in, Dtype t) { change(in.k, t, [](float x) { return x + 1e5f; }); }, 1e5f},
    {"K + 1e6", false, [](AttentionInputs& in, Dtype t) { change(in.k, t, [](float x) { return x + 1e6f; }); }, 1e6f},
    {"V times 1e4", true, [](AttentionInputs& in, Dtype t) { change(in.v, t, [](float x) { return 1e4f * x; }); }},
    {"V times 1e6", false, [](AttentionInputs& in, Dtype t) { change(in.v, t, [](float x) { return 1e6f * x; }); }},
};

// ---- matrix products ----

Tensor multiply(const Gemm& g, const GemmInputs& in) {  // summed from the end, 16 products at a time
  Tensor c({g.batch, g.m, g.n});
  for (std::int64_t row = 0; row < rows_of(c); ++row) {
    for (int j = 0; j < g.n; ++j) {
      float total = 0;
      for (int end = g.k; end > 0; end -= 16) {
        float part = 0;
        for (int d = std::max(0, end - 16); d < end; ++d) {
          part += in.a.values[(g.batch_a == 1 ? row % g.m : row) * g.k + d] * in.b.values[(row / g.m * g.n + j) * g.k + d];
        }
        total += part;
      }
      c.values[row * g.n + j] = problem::round_to(g.dtype, total);
    }
  }
  return c;
}

// The smallest share by which an honest output may be scaled towards zero and be rejected; 1 are all zeros. Above 1: nothing
// is.
template <class Judge>
double smallest_rejected(const Tensor& honest, Dtype dtype, const Judge& passes) {
  const auto scaled = [&](double share) {
    Tensor y = honest;
    change(y, dtype, [&](float x) { return static_cast<float>(x * (1 - share)); });
    return y;
  };
  if (passes(scaled(1))) return INFINITY;
  double accepted = 0, rejected = 1;
  for (int step = 0; step < 30; ++step) {
    const double middle = step < 15 && accepted == 0 ? rejected / 4 : (accepted + rejected) / 2;
    (passes(scaled(middle)) ? accepted : rejected) = middle;
  }
  return rejected;
}

void print_line(const std::string& rule, Dtype dtype, const std::string& inputs, double share) {
  std::printf("| %s | %s | %s | %.1e |\n", rule.c_str(), std::string(problem::name(dtype)).c_str(), inputs.c_str(), share);
}

}  // namespace

TEST_CASE("row softmaxes far from zero: zeros, 1 / cols and the next row's output are rejected, honest ones accepted") {
  for (const Dtype dtype : dtypes) {
    for (const float offset : {0.0f, 1e4f, 1e7f, 1e38f, 3e38f, -1e38f, largest_number(dtype), -largest_number(dtype)}) {
      if (std::abs(offset) > largest_number(dtype)) continue;
      for (const int cols : {1, 2, 5, 207, 4096}) {
        const Softmax s = problem::resolve({.rows = 6, .cols = cols, .dtype = dtype});
        Tensor x = scores_at(s, offset);
        for (float& score : x.values) score = std::clamp(score, -largest_number(dtype), largest_number(dtype));
        const run::SoftmaxTruth truth(s, x);
        const Tensor honest = softmax(s, x, Way::difference);
        INFO(problem::to_string(s) << ", offset " << offset);
        CHECK(truth.judge(honest).pass);
        CHECK(truth.judge(softmax(s, x, Way::parts)).pass);
        if (std::abs(offset) <= 1e7f) {
          const check::TensorVerdict verdict = truth.judge(softmax(s, x, Way::fused));
          INFO(verdict.reason);
          CHECK(verdict.pass);
        }
        CHECK_FALSE(truth.judge(Tensor({s.rows, s.cols})).pass);
        const Tensor equal({s.rows, s.cols}, problem::round_to(dtype, 1.0f / static_cast<float>(cols)));
        CHECK(truth.judge(equal).pass != differ(honest, equal));
        CHECK(truth.judge(shifted(honest)).pass != differ(honest, shifted(honest)));
      }
    }
  }
}

TEST_CASE("a row softmax that scales scores before it subtracts is rejected far from zero") {
  const Softmax s = problem::resolve({.rows = 6, .cols = 207, .dtype = Dtype::fp32});
  for (const float offset : {1e3f, 1e4f, 1e6f}) {
    const Tensor x = scores_at(s, offset);
    Tensor y({s.rows, s.cols});
    for (int row = 0; row < s.rows; ++row) {
      const float* x_row = &x.values[std::int64_t{row} * s.cols];
      const float m = *std::max_element(x_row, x_row + s.cols) * log2_e;
      float l = 0;
      const auto e = [&](int j) {
        const volatile float scaled = x_row[j] * log2_e;  // rounded: no FMA
        return std::exp2(scaled - m);
      };
      for (int j = 0; j < s.cols; ++j) l += e(j);
      for (int j = 0; j < s.cols; ++j) y.values[std::int64_t{row} * s.cols + j] = e(j) / l;
    }
    CHECK_FALSE(run::SoftmaxTruth(s, x).judge(y).pass);
  }
}

TEST_CASE("attention with inputs scaled by a million: zeros, constants, V's mean and the next row's output are rejected") {
  for (const Dtype dtype : dtypes) {
    for (const auto& [heads, kv_heads, seq_q, seq_k, dim, causal] : {std::tuple(2, 1, 20, 40, 64, false),
                                                                     {1, 1, 33, 33, 16, true},
                                                                     {1, 1, 7, 300, 128, false},
                                                                     {1, 1, 12, 50, 2, false}}) {
      for (const Scaling& scaling : scalings) {
        if (dtype == Dtype::fp16 && !scaling.fp16) continue;
        Attention a{.heads = heads, .kv_heads = kv_heads, .seq_q = seq_q, .seq_k = seq_k, .dim = dim, .causal = causal};
        a.dtype = dtype;
        a = problem::resolve(a);
        AttentionInputs in = problem::make_inputs(a, 3);
        scaling.apply(in, dtype);
        const run::AttentionTruth truth(a, in);
        const Result honest = flash(a, in);
        const auto verdict = truth.judge(honest.o, honest.lse);
        INFO(problem::to_string(a) << ", " << scaling.text << ": " << verdict[0].reason << verdict[1].reason);
        CHECK((verdict[0].pass && verdict[1].pass));
        const auto passes = [&](const Tensor& o) { return truth.judge(o, honest.lse)[0].pass; };
        CHECK_FALSE(passes(Tensor(honest.o.shape)));
        CHECK_FALSE(truth.judge(honest.o, Tensor(honest.lse.shape))[1].pass);
        // Beside an offset that is beyond the dtype's steps, or that fp32 rounds by more than keys differ, all keys are alike.
        if (check::ulp(dtype, scaling.k_offset) > 1 || scaling.k_offset >= 1e6f) continue;
        CHECK_FALSE(passes(Tensor(honest.o.shape, 0.5f)));
        CHECK_FALSE(passes(mean_of_v(a, in)));
        CHECK_FALSE(passes(shifted(honest.o)));
      }
    }
  }
}

TEST_CASE("attention with one huge column of V, or one tiny: zeros in the others are rejected") {
  for (const Dtype dtype : dtypes) {
    for (const float factor : {1e4f, 1e-3f}) {
      Attention a{.seq_q = 20, .seq_k = 40, .dim = 32, .dtype = dtype};
      a = problem::resolve(a);
      AttentionInputs in = problem::make_inputs(a, 3);
      for (int j = 0; j < a.seq_k; ++j)
        in.v.values[j * a.dim + 5] = problem::round_to(dtype, factor * in.v.values[j * a.dim + 5]);
      const run::AttentionTruth truth(a, in);
      const Result honest = flash(a, in);
      CHECK(truth.judge(honest.o, honest.lse)[0].pass);
      Tensor o = honest.o;
      for (std::int64_t i = 0; i < std::ssize(o.values); ++i) {
        if ((i % a.dim == 5) == (factor < 1)) o.values[i] = 0;
      }
      CHECK_FALSE(truth.judge(o, honest.lse)[0].pass);
    }
  }
}

TEST_CASE("matrix products scaled by a million, with rows of every size and a huge column: faults are rejected") {
  struct Sizes {
    const char* text;
    bool fp16;
    std::function<void(const Gemm&, GemmInputs&)> apply;
  };
  const auto scale_row = [](Tensor& tensor, std::int64_t row, float factor) {
    const std::int64_t k = tensor.shape.back();
    for (std::int64_t d = 0; d < k; ++d) tensor.values[row * k + d] *= factor;
  };
  const Sizes all_sizes[] = {
      {"as they are", true, [](const Gemm&, GemmInputs&) {}},
      {"B times 1e3", true, [](const Gemm& g, GemmInputs& in) { change(in.b, g.dtype, [](float x) { return 1e3f * x; }); }},
      {"A and B times 1e6", false,
       [](const Gemm& g, GemmInputs& in) {
         change(in.a, g.dtype, [](float x) { return 1e6f * x; });
         change(in.b, g.dtype, [](float x) { return 1e6f * x; });
       }},
      {"rows of A from 2⁻¹² to 2¹²", true,
       [&](const Gemm& g, GemmInputs& in) {
         for (int i = 0; i < g.m; ++i) scale_row(in.a, i, std::ldexp(1.0f, i % 25 - 12));
       }},
      {"a column of C 2¹² times larger", true, [&](const Gemm&, GemmInputs& in) { scale_row(in.b, 3, 0x1p12f); }},
      {"a column of C 2²⁰ times larger", false, [&](const Gemm&, GemmInputs& in) { scale_row(in.b, 3, 0x1p20f); }},
      {"every other column of C 2⁻¹⁰ times smaller", true,
       [&](const Gemm& g, GemmInputs& in) {
         for (int j = 0; j < g.n; j += 2) scale_row(in.b, j, 0x1p-10f);
       }},
  };
  for (const Dtype dtype : dtypes) {
    for (const Sizes& sizes : all_sizes) {
      if (dtype == Dtype::fp16 && !sizes.fp16) continue;
      for (const int k : {1, 16, 700}) {
        const Gemm g = problem::resolve(Gemm{.m = 33, .n = 40, .k = k, .dtype = dtype});
        GemmInputs in = problem::make_inputs(g, 2);
        sizes.apply(g, in);
        for (Tensor* x : {&in.a, &in.b}) change(*x, dtype, [](float y) { return y; });
        const run::GemmTruth truth(g, in);
        const Tensor honest = multiply(g, in);
        const check::TensorVerdict verdict = truth.judge(honest);
        INFO(problem::to_string(g) << ", " << sizes.text << ": " << verdict.reason);
        CHECK(verdict.pass);
        CHECK_FALSE(truth.judge(Tensor(honest.shape)).pass);
        CHECK_FALSE(truth.judge(Tensor(honest.shape, 1.0f)).pass);
        CHECK_FALSE(truth.judge(shifted(honest)).pass);
        Tensor other_columns = honest;  // only the huge column is right
        for (std::int64_t i = 0; i < std::ssize(honest.values); ++i) {
          if (i % g.n != 3) other_columns.values[i] = 0;
        }
        CHECK_FALSE(truth.judge(other_columns).pass);
        Tensor small_columns = honest;  // only the large ones are right
        for (std::int64_t i = 0; i < std::ssize(honest.values); ++i) {
          if (i % g.n % 2 == 0) small_columns.values[i] = 0;
        }
        CHECK_FALSE(truth.judge(small_columns).pass);
      }
    }
  }
}

TEST_CASE("the smallest error that each rule rejects") {
  std::printf("| rule | dtype | inputs | rejected from |\n|---|---|---|---|\n");
  for (const Dtype dtype : dtypes) {
    for (const float offset : {0.0f, 1e4f, 1e7f, 1e38f}) {
      if (offset > largest_number(dtype)) continue;
      const Softmax s = problem::resolve({.rows = 6, .cols = 207, .dtype = dtype});
      const Tensor x = scores_at(s, offset);
      const run::SoftmaxTruth truth(s, x);
      const double share =
          smallest_rejected(softmax(s, x, Way::difference), dtype, [&](const Tensor& y) { return truth.judge(y).pass; });
      char text[40];
      std::snprintf(text, sizeof text, "offset %g", offset);
      print_line("softmax", dtype, text, share);
      CHECK(share < (dtype == Dtype::fp32 ? 1e-5 : 0.05));
    }
  }
  for (const Dtype dtype : dtypes) {
    for (const Scaling& scaling : scalings) {
      if (dtype == Dtype::fp16 && !scaling.fp16) continue;
      const Attention a = problem::resolve({.seq_q = 20, .seq_k = 40, .dim = 64, .dtype = dtype});
      AttentionInputs in = problem::make_inputs(a, 3);
      scaling.apply(in, dtype);
      const run::AttentionTruth truth(a, in);
      const Result honest = flash(a, in);
      const double share =
          smallest_rejected(honest.o, dtype, [&](const Tensor& o) { return truth.judge(o, honest.lse)[0].pass; });
      print_line("attention, O", dtype, scaling.text, share);
      CHECK(share < 1);
    }
  }
  for (const Dtype dtype : dtypes) {
    for (const float factor : {1.0f, 1e3f, 1e6f}) {
      if (dtype == Dtype::fp16 && factor > 1e3f) continue;
      const Gemm g = problem::resolve(Gemm{.m = 33, .n = 40, .k = 700, .dtype = dtype});
      GemmInputs in = problem::make_inputs(g, 2);
      change(in.b, dtype, [&](float x) { return factor * x; });
      const run::GemmTruth truth(g, in);
      const double share = smallest_rejected(multiply(g, in), dtype, [&](const Tensor& c) { return truth.judge(c).pass; });
      char text[40];
      std::snprintf(text, sizeof text, "B times %g", factor);
      print_line("matrix product", dtype, text, share);
      CHECK(share < (dtype == Dtype::fp32 ? 1e-4 : 0.05));
    }
  }
}

// ---- NaN and infinity ----

namespace {

// Six queries and 40 keys, Q[:, 0] = 1: K[j, 0] = ±∞ makes that key's score ±∞ for everyone.
struct AttentionCase {
  Attention a;
  AttentionInputs in;

  explicit AttentionCase(Dtype dtype, bool causal = false)
      : a(problem::resolve({.heads = 2, .kv_heads = 1, .seq_q = 6, .seq_k = 40, .dim = 16, .causal = causal, .dtype = dtype})),
        in(problem::make_inputs(a, 5)) {
    for (std::int64_t row = 0; row < rows_of(in.q); ++row) in.q.values[row * a.dim] = 1;
  }
  float& k(int key, int d) { return in.k.values[key * a.dim + d]; }
  float& v(int key, int d) { return in.v.values[key * a.dim + d]; }
};

// What becomes of an honest result when elements of it are changed.
class Judged {
 public:
  explicit Judged(const AttentionCase& c) : dim_(c.a.dim), truth_(c.a, c.in), honest_(flash(c.a, c.in)) {}
  std::vector<check::TensorVerdict> accepted() const { return truth_.judge(honest_.o, honest_.lse); }
  bool pass() const {
    const auto verdicts = accepted();
    INFO(verdicts[0].reason << verdicts[1].reason);
    CHECK((verdicts[0].pass && verdicts[1].pass));
    return verdicts[0].pass && verdicts[1].pass;
  }
  bool o_passes(int row, int d, float value) const {
    Tensor o = honest_.o;
    o.values[row * dim_ + d] = value;
    return truth_.judge(o, honest_.lse)[0].pass;
  }
  bool o_row_passes(int row, float value) const {
    Tensor o = honest_.o;
    std::fill_n(&o.values[row * dim_], dim_, value);
    return truth_.judge(o, honest_.lse)[0].pass;
  }
  bool lse_passes(int row, float value) const {
    Tensor lse = honest_.lse;
    lse.values[row] = value;
    return truth_.judge(honest_.o, lse)[1].pass;
  }
  float o(int row, int d) const { return honest_.o.values[row * dim_ + d]; }
  float lse(int row) const { return honest_.lse.values[row]; }

 private:
  int dim_;
  run::AttentionTruth truth_;
  Result honest_;
};

}  // namespace

TEST_CASE("scores of −∞ add nothing: rows with some are compared, and NaN in them is rejected") {
  for (const Dtype dtype : dtypes) {
    AttentionCase c(dtype);
    for (int j = 10; j < 40; ++j) c.k(j, 0) = -inf;
    const Judged judged(c);
    CHECK(judged.pass());
    CHECK(judged.accepted()[0].rows_exempt == 0);
    CHECK(std::isfinite(judged.o(3, 2)));
    CHECK_FALSE(judged.o_row_passes(3, not_a_number));  // −∞ − (−∞)
    CHECK_FALSE(judged.o_row_passes(3, 0));
    CHECK_FALSE(judged.lse_passes(3, not_a_number));
    CHECK_FALSE(judged.lse_passes(3, -inf));
    AttentionCase without = c;  // as if the padding were not there: the mean over 40 keys, not 10
    for (int j = 10; j < 40; ++j) without.k(j, 0) = 0;
    CHECK_FALSE(judged.o_passes(3, 2, Judged(without).o(3, 2)));
    CHECK_FALSE(judged.lse_passes(3, Judged(without).lse(3)));
  }
}

TEST_CASE("a score of −∞ does not hide its V: a NaN is NaN, an infinity is that or NaN, in that column and there only") {
  for (const Dtype dtype : dtypes) {
    for (const float bad : {not_a_number, inf, -inf}) {
      AttentionCase c(dtype);
      c.k(20, 0) = -inf;
      c.v(20, 4) = bad;
      const Judged judged(c);
      CHECK(judged.pass());
      CHECK(judged.o_passes(1, 4, not_a_number));
      CHECK_FALSE(judged.o_passes(1, 4, 0.5f));  // hidden
      for (const float infinity : {inf, -inf}) CHECK(judged.o_passes(1, 4, infinity) == (bad == infinity));
      CHECK_FALSE(judged.o_passes(1, 5, not_a_number));
      CHECK_FALSE(judged.lse_passes(1, not_a_number));
    }
  }
}

TEST_CASE("scores of −∞ alone give O = 0 and LSE = −∞, and what is not finite where a visible V is not") {
  for (const Dtype dtype : dtypes) {
    AttentionCase c(dtype);
    for (int j = 0; j < 40; ++j) c.k(j, 0) = -inf;
    c.v(7, 1) = not_a_number;
    c.v(8, 2) = inf;
    const Judged judged(c);
    CHECK(judged.pass());
    CHECK(judged.o(0, 0) == 0);
    CHECK(std::isnan(judged.o(0, 1)));
    CHECK(judged.o_passes(0, 2, inf));
    CHECK_FALSE(judged.o_passes(0, 0, not_a_number));
    CHECK_FALSE(judged.o_passes(0, 0, 1e-3f));
    CHECK_FALSE(judged.o_passes(0, 1, 0));
    CHECK(judged.o_passes(0, 2, not_a_number));  // 0 · ∞
    CHECK_FALSE(judged.o_passes(0, 2, -inf));
    CHECK_FALSE(judged.o_passes(0, 2, 0));
    for (const float wrong : {not_a_number, 0.0f, inf, -FLT_MAX}) CHECK_FALSE(judged.lse_passes(0, wrong));
  }
}

TEST_CASE("+∞ or NaN among a row's scores makes all of that row NaN, LSE too, and no other row") {
  for (const Dtype dtype : dtypes) {
    for (const float bad : {inf, not_a_number}) {
      AttentionCase c(dtype, true);
      c.k(37, 0) = bad;  // queries 3 to 5 see key 37
      const Judged judged(c);
      CHECK(judged.pass());
      CHECK(judged.accepted()[0].rows_exempt == 0);
      CHECK(std::isnan(judged.lse(3)));
      for (const float wrong : {0.0f, 0.5f, inf, -inf}) {
        CHECK_FALSE(judged.o_passes(3, 0, wrong));
        CHECK_FALSE(judged.o_row_passes(5, wrong));
        CHECK_FALSE(judged.lse_passes(3, wrong));
      }
      CHECK_FALSE(judged.o_passes(2, 0, not_a_number));  // the neighbour
      CHECK_FALSE(judged.lse_passes(2, not_a_number));
      CHECK_FALSE(judged.o_passes(2, 0, 3.0f));
    }
  }
}

TEST_CASE("infinities of V reach their column: that infinity, or NaN, and both signs NaN; the others are compared") {
  for (const Dtype dtype : dtypes) {
    AttentionCase c(dtype);
    c.v(3, 0) = inf;
    c.v(4, 1) = -inf;
    c.v(5, 2) = inf;
    c.v(6, 2) = -inf;
    const Judged judged(c);
    CHECK(judged.pass());
    CHECK((judged.o(2, 0) == inf && judged.o(2, 1) == -inf && std::isnan(judged.o(2, 2))));
    CHECK(judged.o_passes(2, 0, not_a_number));  // a probability may round to 0
    CHECK(judged.o_passes(2, 1, not_a_number));
    CHECK_FALSE(judged.o_passes(2, 0, -inf));
    CHECK_FALSE(judged.o_passes(2, 0, 1.0f));
    CHECK_FALSE(judged.o_passes(2, 1, inf));
    CHECK_FALSE(judged.o_passes(2, 2, inf));
    CHECK_FALSE(judged.o_passes(2, 2, 0));
    CHECK_FALSE(judged.o_passes(2, 3, not_a_number));
    CHECK_FALSE(judged.o_passes(2, 3, inf));
    CHECK_FALSE(judged.o_passes(2, 3, judged.o(2, 3) + 1));
    CHECK_FALSE(judged.lse_passes(2, judged.lse(2) + 1));
  }
}

TEST_CASE("V next to the dtype's largest number is an ordinary input; undivided sums beyond FLT_MAX may overflow") {
  for (const Dtype dtype : dtypes) {
    AttentionCase c(dtype);
    for (int j = 0; j < 40; ++j) c.v(j, 6) = dtype == Dtype::fp16 ? 65504.0f : 1e34f;
    const Judged judged(c);
    CHECK(judged.pass());
    CHECK(std::isfinite(judged.o(1, 6)));
    CHECK(judged.o_passes(1, 6, inf) == (dtype == Dtype::fp16));
    CHECK_FALSE(judged.o_passes(1, 6, -inf));
    CHECK_FALSE(judged.o_passes(1, 6, not_a_number));
    CHECK_FALSE(judged.o_passes(1, 6, 0));
    CHECK_FALSE(judged.o_passes(1, 7, inf));
  }
  AttentionCase c(Dtype::fp32);
  for (int j = 0; j < 40; ++j) c.v(j, 6) = FLT_MAX;
  const Judged judged(c);
  CHECK(judged.pass());
  CHECK(judged.o_passes(1, 6, inf));
  CHECK(judged.o_passes(1, 6, FLT_MAX));
  CHECK_FALSE(judged.o_passes(1, 6, 3e38f));
  CHECK_FALSE(judged.o_passes(1, 7, inf));
}

TEST_CASE("only rows whose finite scores may overflow in fp32 are exempt, and they must be written") {
  AttentionCase c(Dtype::fp32, true);
  c.k(38, 1) = 3e38f;  // seen by queries 4 and 5
  for (std::int64_t row = 0; row < rows_of(c.in.q); ++row) c.in.q.values[row * c.a.dim + 1] = 3;
  const run::AttentionTruth truth(c.a, c.in);
  const Result honest = flash(c.a, c.in);
  const auto verdicts = truth.judge(honest.o, honest.lse);
  CHECK((verdicts[0].pass && verdicts[1].pass));
  CHECK(verdicts[0].rows_exempt == 2 * 2);
  CHECK(verdicts[1].rows_exempt == 2 * 2);
  Tensor o = honest.o;
  o.values[5 * c.a.dim] = 77;
  CHECK(truth.judge(o, honest.lse)[0].pass);
  o.values[5 * c.a.dim] = check::poison_value(Dtype::fp32);
  CHECK(truth.judge(o, honest.lse)[0].reason == "row (batch 0, head 0, query 5): element 0 was not written");
  o.values[3 * c.a.dim] = 77;
  CHECK_FALSE(truth.judge(o, honest.lse)[0].pass);
}

TEST_CASE("probabilities below the smallest normal number may be 0, where dropout leaves out all larger ones") {
  bool found = false;
  for (std::uint64_t seed = 0; seed < 40 && !found; ++seed) {
    Attention a{.seq_q = 1, .seq_k = 2, .dim = 32, .scale = 1.0f, .dtype = Dtype::bf16, .dropout = 128, .dropout_seed = seed};
    a = problem::resolve(a);
    AttentionInputs in = problem::make_inputs(a, 1);
    for (Tensor* x : {&in.q, &in.k}) std::fill(x->values.begin(), x->values.end(), 0.0f);
    in.q.values[0] = 1;
    in.k.values[0] = 88;  // e^−88 is below 2^−126
    const run::AttentionTruth truth(a, in);
    const Tensor zeros({1, 1, 1, 32}), lse({1, 1, 1}, 88.0f);
    Tensor wrong = zeros;
    wrong.values[5] = 1e-34f;
    if (!truth.judge(zeros, lse)[0].pass) continue;  // the first key stays
    found = true;
    CHECK_FALSE(truth.judge(wrong, lse)[0].pass);
  }
  CHECK(found);
}

TEST_CASE("extreme scales, denormals, one key, one column: honest attention is accepted, and zeros and NaN are rejected") {
  for (const Dtype dtype : dtypes) {
    for (const float scale : {1e-45f, -1e-45f, 1e-38f, -0.5f, 1e3f, 1e30f, -1e30f}) {
      for (const auto& [seq_k, dim] : {std::pair(1, 1), {40, 1}, {1, 64}, {40, 64}}) {
        for (const float factor : {1e-40f, 1.0f}) {
          Attention a{.seq_q = 5, .seq_k = seq_k, .dim = dim, .scale = scale, .dtype = dtype};
          a = problem::resolve(a);
          AttentionInputs in = problem::make_inputs(a, 9);
          for (Tensor* x : {&in.q, &in.k}) change(*x, dtype, [&](float y) { return factor * y; });
          const run::AttentionTruth truth(a, in);
          const Result honest = flash(a, in);
          const auto verdicts = truth.judge(honest.o, honest.lse);
          INFO(problem::to_string(a) << ", scale " << scale << ", Q and K times " << factor << ": " << verdicts[0].reason
                                     << verdicts[1].reason);
          CHECK((verdicts[0].pass && verdicts[1].pass));
          CHECK(verdicts[0].rows_exempt == 0);
          CHECK_FALSE(truth.judge(Tensor(honest.o.shape), honest.lse)[0].pass);
          CHECK_FALSE(truth.judge(Tensor(honest.o.shape, not_a_number), honest.lse)[0].pass);
          CHECK_FALSE(truth.judge(honest.o, Tensor(honest.lse.shape, not_a_number))[1].pass);
        }
      }
    }
  }
}

TEST_CASE("denormal values and outputs are compared to a few steps of the dtype") {
  for (const Dtype dtype : dtypes) {
    AttentionCase c(dtype);
    const float tiny = dtype == Dtype::fp16 ? 1e-6f : 1e-39f;  // 17 steps of fp16, 11 of bf16
    for (float& x : c.in.v.values) x = problem::round_to(dtype, tiny * (x > 0 ? 1 + x : 1 - x));
    const Judged judged(c);
    CHECK(judged.pass());
    CHECK_FALSE(judged.o_row_passes(1, 0));
    CHECK_FALSE(judged.o_passes(1, 3, 2 * judged.o(1, 3)));
  }
}

TEST_CASE("matrix products with NaN and infinities: each element is what the truth says, and the others are compared") {
  for (const Dtype dtype : dtypes) {
    const Gemm g = problem::resolve(Gemm{.m = 6, .n = 9, .k = 20, .dtype = dtype});
    GemmInputs in = problem::make_inputs(g, 3);
    const auto a = [&](int i, int d) -> float& { return in.a.values[i * g.k + d]; };
    const auto b = [&](int j, int d) -> float& { return in.b.values[j * g.k + d]; };
    a(1, 4) = not_a_number;
    a(2, 4) = inf;
    b(3, 7) = -inf;
    for (int j = 0; j < g.n; ++j) b(j, 4) = problem::round_to(dtype, 0.5f + static_cast<float>(j));
    for (int i = 0; i < g.m; ++i) a(i, 7) = 1;
    b(5, 4) = 0;  // 0 · ∞ in row 2
    const run::GemmTruth truth(g, in);
    const Tensor honest = multiply(g, in);
    const check::TensorVerdict verdict = truth.judge(honest);
    INFO(verdict.reason);
    CHECK(verdict.pass);
    CHECK(verdict.rows_exempt == 0);
    CHECK(verdict.rows_checked == g.m);
    const auto passes = [&](int i, int j, float value) {
      Tensor c = honest;
      c.values[i * g.n + j] = value;
      return truth.judge(c).pass;
    };
    CHECK_FALSE(passes(1, 0, 1.0f));  // finite where NaN is due
    CHECK_FALSE(passes(1, 0, inf));
    CHECK_FALSE(passes(0, 0, not_a_number));  // NaN in a neighbour
    CHECK_FALSE(passes(0, 0, 50.0f));
    CHECK_FALSE(passes(2, 0, not_a_number));
    CHECK_FALSE(passes(2, 0, -inf));
    CHECK_FALSE(passes(2, 0, 1.0f));
    CHECK_FALSE(passes(2, 5, inf));  // 0 · ∞
    CHECK_FALSE(passes(2, 3, inf));  // ∞ − ∞
    CHECK_FALSE(passes(0, 3, not_a_number));
    CHECK_FALSE(passes(0, 3, inf));
    CHECK_FALSE(passes(0, 3, 0));
    CHECK_FALSE(passes(0, 4, not_a_number));  // beside the column
    CHECK(passes(2, 0, inf));
  }
}

TEST_CASE("matrix products beyond fp16 round to infinity, and sums beyond fp32 may overflow on the way") {
  const Gemm g = problem::resolve(Gemm{.m = 1, .n = 3, .k = 2, .dtype = Dtype::fp16});
  const GemmInputs in{Tensor({1, 1, 2}, 300.0f), Tensor({1, 3, 2}, 0)};
  GemmInputs large = in;
  large.b.values = {300, 300, 109, 109, 1, 1};  // 180000, 65400, 600
  const run::GemmTruth truth(g, large);
  const auto passes = [](const run::GemmTruth& by, std::vector<float> c) {
    Tensor tensor({1, 1, 3});
    tensor.values = c;
    return by.judge(tensor).pass;
  };
  CHECK(passes(truth, {inf, 65408, 600}));
  CHECK_FALSE(passes(truth, {65504, 65408, 600}));
  CHECK_FALSE(passes(truth, {-inf, 65408, 600}));
  CHECK_FALSE(passes(truth, {not_a_number, 65408, 600}));
  CHECK_FALSE(passes(truth, {inf, 65408, inf}));
  CHECK_FALSE(passes(truth, {inf, 65408, 0}));

  const Gemm f = problem::resolve(Gemm{.m = 1, .n = 3, .k = 2, .dtype = Dtype::fp32});
  GemmInputs huge{Tensor({1, 1, 2}, 2e19f), Tensor({1, 3, 2}, 0)};
  huge.b.values = {2e19f, -2e19f, 1e19f, -1e19f, 1e18f, 0};  // 4e38 − 4e38, 2e38 − 2e38, 2e37
  const run::GemmTruth fp32(f, huge);
  CHECK(passes(fp32, {0, 0, 2e37f}));
  CHECK(passes(fp32, {inf, 0, 2e37f}));
  CHECK(passes(fp32, {not_a_number, 0, 2e37f}));
  CHECK_FALSE(passes(fp32, {1e38f, 0, 2e37f}));
  CHECK_FALSE(passes(fp32, {0, 0, inf}));
  CHECK_FALSE(passes(fp32, {0, 0, not_a_number}));
  CHECK_FALSE(passes(fp32, {0, 0, 0}));
}
