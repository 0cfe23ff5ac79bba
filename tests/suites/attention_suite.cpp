#include "tests/suites/attention_suite.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/suites/asked.h"

namespace suite {
namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::InputKind;
using problem::Tensor;

struct Heads {
  int batch, heads, kv_heads;
};

Attention shape_of(int seq_q, int seq_k, Heads heads, int dim, bool causal, problem::Dtype dtype) {
  Attention shape;
  shape.batch = heads.batch;
  shape.heads = heads.heads;
  shape.kv_heads = heads.kv_heads;
  shape.seq_q = seq_q;
  shape.seq_k = seq_k;
  shape.dim = dim;
  shape.causal = causal;
  shape.dtype = dtype;
  return problem::resolve(shape);
}

// Rows [first, last) of a [batch, heads, rows, dim] tensor, one after the other for all heads.
std::vector<float> rows_of(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  const std::int64_t rows = tensor.shape[2];
  const std::int64_t dim = tensor.shape.size() > 3 ? tensor.shape[3] : 1;
  std::vector<float> picked;
  for (std::int64_t head = 0; head < tensor.shape[0] * tensor.shape[1]; ++head) {
    const auto begin = tensor.values.begin() + (head * rows + first) * dim;
    picked.insert(picked.end(), begin, begin + (last - first) * dim);
  }
  return picked;
}

void same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto difference = check::first_difference(a, b);
  INFO("first difference at element " << difference.value_or(-1));
  REQUIRE(!difference);
}

run::Outcome clean(const run::AttentionVariant& variant, const Attention& shape, const AttentionInputs& inputs,
                   const run::ExecuteOptions& options = {}, const run::AttentionTruth* truth = nullptr) {
  INFO("variant " << variant.name << ", " << problem::to_string(shape) << ", scale " << *shape.scale);
  run::Outcome outcome = run::execute(variant, shape, inputs, options, truth);
  for (const runtime::Finding& finding : outcome.findings) {
    INFO(finding.text);
    REQUIRE(outcome.findings.empty());
  }
  if (outcome.verdict) {
    INFO(outcome.verdict->reason());
    REQUIRE(outcome.verdict->pass());
  }
  return outcome;
}

}  // namespace

std::vector<Case> shape_list(problem::Dtype dtype) {
  const std::vector<std::pair<int, int>> lengths = {{1, 1},     {1, 3},   {3, 1},     {5, 5},     {17, 17},   {64, 64},
                                                    {64, 128},  {97, 97}, {113, 203}, {128, 217}, {203, 113}, {239, 1},
                                                    {256, 256}, {1, 512}, {257, 255}, {197, 197}};
  const std::vector<Heads> heads = {{1, 1, 1}, {1, 3, 3}, {3, 2, 1}, {1, 4, 2}};
  const std::vector<int> dims = {32, 64, 40, 128, 33};
  std::vector<Case> cases;
  std::size_t turn = 0;
  for (const auto& [seq_q, seq_k] : lengths) {
    for (const bool causal : {false, true}) {
      const Heads few = turn % 2 == 0 ? Heads{1, 1, 1} : Heads{1, 2, 1};  // where the lengths alone are work enough
      const Heads chosen = seq_q * seq_k > 20000 ? few : heads[turn % heads.size()];
      cases.push_back({shape_of(seq_q, seq_k, chosen, dims[turn % dims.size()], causal, dtype)});
      ++turn;
    }
  }
  for (const bool causal : {false, true}) {  // a language model's prompt: 14 query heads over 2, 7 queries against 256 keys
    cases.push_back({shape_of(7, 256, {1, 14, 2}, 64, causal, dtype)});
  }
  for (const int dim : {1, 96, 256}) cases.push_back({shape_of(17, 33, {1, 3, 1}, dim, false, dtype)});
  for (const InputKind kind : {InputKind::large, InputKind::one_hot, InputKind::uniform}) {
    for (const bool causal : {false, true}) cases.push_back({shape_of(97, 113, {1, 2, 2}, 64, causal, dtype), kind});
  }
  return cases;
}

namespace {

std::vector<Case> masks_by_turns(const std::vector<Case>& list, bool first) {
  std::vector<Case> some;
  int large = 0;
  for (const Case& c : list) {
    // Of two such cases, one after the other in the list, the second is causal.
    const bool is_large = c.shape.seq_q * c.shape.seq_k > 5000;
    const bool in_first = !is_large || c.shape.causal == (large / 2 % 2 == 0);
    if (in_first == first) some.push_back(c);
    large += is_large;
  }
  return some;
}

}  // namespace

std::vector<Case> one_mask_each(const std::vector<Case>& list) { return masks_by_turns(list, true); }
std::vector<Case> other_masks(const std::vector<Case>& list) { return masks_by_turns(list, false); }

std::vector<Case> small_shapes(problem::Dtype dtype) {
  return {{shape_of(17, 39, {2, 2, 1}, 40, true, dtype)},
          {shape_of(17, 5, {1, 3, 1}, 32, true, dtype)},
          {shape_of(23, 65, {1, 2, 2}, 33, false, dtype), InputKind::large}};
}

Attention packed(const std::vector<int>& lengths, int dim, problem::Dtype dtype, bool causal, int window, int heads,
                 int kv_heads) {
  Attention shape{.heads = heads, .kv_heads = kv_heads, .dim = dim, .causal = causal, .window = window, .dtype = dtype};
  shape.cu_seqlens = {0};
  for (const int length : lengths) shape.cu_seqlens.push_back(shape.cu_seqlens.back() + length);
  shape.seq_q = shape.seq_k = shape.cu_seqlens.back();
  return problem::resolve(shape);
}

std::vector<Case> packed_shapes(const std::vector<int>& dims, problem::Dtype dtype) {
  const std::vector<std::vector<int>> lengths = {{1},         {1, 1, 1},           {0, 5, 0, 0, 7, 0}, {64, 64},
                                                 {63, 65, 1}, {17, 97, 1, 30, 33}, {128, 0, 127, 2},   {3, 150, 40}};
  std::vector<Case> cases;
  std::size_t turn = 0;
  for (const auto& some : lengths) {
    for (const auto& [causal, window] : {std::pair{false, 0}, {true, 0}, {false, 20}, {true, 70}}) {
      const int heads = turn % 3 == 0 ? 1 : 2;
      cases.push_back({packed(some, dims[turn % dims.size()], dtype, causal, window, heads)});
      ++turn;
    }
  }
  return cases;
}

int passes(const run::AttentionVariant& variant, const std::vector<Case>& cases, std::uint64_t seed) {
  int taken = 0;
  for (const Case& c : cases) {
    INFO("variant " << variant.name << ", " << problem::to_string(c.shape) << ", inputs " << static_cast<int>(c.inputs));
    if (const auto reason = run::refusal(variant.supports, c.shape)) {
      const auto& dtypes = variant.supports.dtypes;
      const auto& dims = variant.supports.dims;
      INFO("refused: " << *reason);
      REQUIRE((std::find(dtypes.begin(), dtypes.end(), c.shape.dtype) == dtypes.end() ||
               c.shape.dim > variant.supports.max_dim ||
               (!dims.empty() && std::find(dims.begin(), dims.end(), c.shape.dim) == dims.end())));
      continue;
    }
    run::ExecuteOptions options;
    options.layout = {taken % 2 == 1, taken % 4 >= 2};
    const auto& asked = asked_of<run::AttentionTruth>(c.shape, c.inputs, seed);
    clean(variant, c.shape, asked.inputs, options, &asked.truth);
    ++taken;
  }
  return taken;
}

void passes_under_schedules(const run::AttentionVariant& variant, const std::vector<Case>& cases, Seeds seeds, bool all_cases) {
  under_schedules(seeds, [&](std::uint64_t seed) {
    INFO("seed " << seed);
    const auto some = all_cases ? cases : std::vector{cases[(seed - 1) % cases.size()]};
    CHECK(passes(variant, some, seed) == static_cast<int>(some.size()));
  });
}

void is_causal(const run::AttentionVariant& variant, const Attention& shape) {
  REQUIRE(shape.causal);
  const AttentionInputs inputs = problem::make_inputs(shape, 11);
  const AttentionInputs other = problem::make_inputs(shape, 12);
  const run::Outcome before = clean(variant, shape, inputs);
  for (const int i : {0, shape.seq_q / 3, shape.seq_q / 2, shape.seq_q - 2}) {
    AttentionInputs changed = inputs;
    for (Tensor AttentionInputs::*tensor : {&AttentionInputs::k, &AttentionInputs::v}) {
      Tensor& target = changed.*tensor;
      const std::int64_t row = target.shape[3];
      for (std::int64_t e = 0; e < static_cast<std::int64_t>(target.values.size()); ++e) {
        if (e / row % shape.seq_k >= shape.last_key(i)) {
          target.values[static_cast<std::size_t>(e)] = (other.*tensor).values[static_cast<std::size_t>(e)];
        }
      }
    }
    const run::Outcome after = clean(variant, shape, changed);
    INFO("variant " << variant.name << ": rows up to " << i << " after a change beyond");
    same_bits(rows_of(before.output("o"), 0, i + 1), rows_of(after.output("o"), 0, i + 1));
    same_bits(rows_of(before.output("lse"), 0, i + 1), rows_of(after.output("lse"), 0, i + 1));
    REQUIRE(check::first_difference(before.output("o").values, after.output("o").values));  // the change did reach later rows
  }
}

void heads_are_independent(const run::AttentionVariant& variant, const Attention& shape) {
  const AttentionInputs inputs = problem::make_inputs(shape, 21);
  const run::Outcome all = clean(variant, shape, inputs);
  Attention single = shape;
  single.batch = single.heads = single.kv_heads = 1;
  const auto slice = [](const Tensor& tensor, std::int64_t batch, std::int64_t head) {
    const std::int64_t elements = tensor.shape[2] * tensor.shape[3];
    Tensor part({1, 1, tensor.shape[2], tensor.shape[3]});
    const auto begin = tensor.values.begin() + (batch * tensor.shape[1] + head) * elements;
    std::copy(begin, begin + elements, part.values.begin());
    return part;
  };
  for (int batch = 0; batch < shape.batch; ++batch) {
    for (int head = 0; head < shape.heads; ++head) {
      const int kv_head = head / (shape.heads / shape.kv_heads);
      const run::Outcome alone = clean(
          variant, single, {slice(inputs.q, batch, head), slice(inputs.k, batch, kv_head), slice(inputs.v, batch, kv_head)});
      INFO("variant " << variant.name << ", batch " << batch << ", head " << head << " alone");
      same_bits(slice(all.output("o"), batch, head).values, alone.output("o").values);
    }
  }
}

void ignores_key_order(const run::AttentionVariant& variant, const Attention& shape) {
  REQUIRE(!shape.causal);
  const AttentionInputs inputs = problem::make_inputs(shape, 31);
  AttentionInputs reversed = inputs;
  for (Tensor AttentionInputs::*tensor : {&AttentionInputs::k, &AttentionInputs::v}) {
    const std::int64_t dim = inputs.k.shape[3];
    for (std::int64_t row = 0; row < static_cast<std::int64_t>((inputs.*tensor).values.size()) / dim; ++row) {
      const std::int64_t mirrored = row / shape.seq_k * shape.seq_k + (shape.seq_k - 1 - row % shape.seq_k);
      std::copy_n((inputs.*tensor).values.begin() + row * dim, dim, (reversed.*tensor).values.begin() + mirrored * dim);
    }
  }
  const run::AttentionTruth truth(shape, inputs);  // of the keys in their old order
  const run::Outcome outcome = run::execute(variant, shape, reversed, {}, &truth);
  INFO("variant " << variant.name << ": " << outcome.verdict->reason());
  REQUIRE(outcome.pass());
}

void takes_infinite_scores(const run::AttentionVariant& variant, const Attention& shape) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float downwards = *shape.scale < 0 ? infinity : -infinity;       // in K, times 1 in Q: a score of −∞
  const auto element = [](auto& tensor, int row, int column) -> auto& {  // of the first head
    return tensor.values[static_cast<std::size_t>(row * tensor.shape[3] + column)];
  };
  AttentionInputs plain = problem::make_inputs(shape, 43);
  for (int i = 0; i < shape.seq_q; ++i) element(plain.q, i, 0) = 1.0f;
  // K's first column decides: keys [begin, end) have infinite scores.
  const auto with_infinite_keys = [&](int begin, int end) {
    AttentionInputs inputs = plain;
    for (int j = begin; j < end; ++j) element(inputs.k, j, 0) = downwards;
    return inputs;
  };
  const auto is_nan = [](float x) { return x != x; };

  for (const auto& [begin, end] : {std::pair(0, shape.seq_k / 2), std::pair(shape.seq_k / 2, shape.seq_k), std::pair(1, 2)}) {
    INFO(variant.name << ": scores of −∞ for keys " << begin << " to " << end - 1);
    AttentionInputs inputs = with_infinite_keys(begin, end);
    const run::Outcome outcome = clean(variant, shape, inputs);
    const Tensor &o = outcome.output("o"), &lse = outcome.output("lse");
    REQUIRE(std::none_of(o.values.begin(), o.values.end(), is_nan));
    REQUIRE(std::all_of(lse.values.begin(), lse.values.end(), [](float x) { return std::isfinite(x); }));

    // Whatever finite V those keys have, it does not count; a NaN does.
    AttentionInputs other_values = inputs;
    for (int t = 0; t < shape.dim; ++t) element(other_values.v, begin, t) = 100.0f;
    same_bits(o.values, clean(variant, shape, other_values).output("o").values);
    element(other_values.v, begin, 0) = std::numeric_limits<float>::quiet_NaN();
    const Tensor with_nan = clean(variant, shape, other_values).output("o");
    for (int i = 0; i < shape.seq_q; ++i) {
      REQUIRE(is_nan(element(with_nan, i, 0)));
      if (shape.dim > 1) REQUIRE(element(with_nan, i, 1) == element(o, i, 1));
    }

    // +∞ in one row, and NaN in another: these rows are NaN throughout, and no other changes.
    for (const float first : {-1.0f, 0.0f}) {  // times −∞: +∞, NaN
      AttentionInputs odd_row = inputs;
      const int odd = shape.seq_q / 2;
      element(odd_row.q, odd, 0) = first;
      const run::Outcome odd_outcome = clean(variant, shape, odd_row);
      const Tensor &odd_o = odd_outcome.output("o"), &odd_lse = odd_outcome.output("lse");
      for (int i = 0; i < shape.seq_q; ++i) {
        INFO("row " << i);
        for (int t = 0; t < shape.dim; ++t) {
          REQUIRE((i == odd ? is_nan(element(odd_o, i, t)) : element(odd_o, i, t) == element(o, i, t)));
        }
        const auto row = static_cast<std::size_t>(i);
        REQUIRE((i == odd ? is_nan(odd_lse.values[row]) : odd_lse.values[row] == lse.values[row]));
      }
    }
  }

  const run::Outcome nothing = clean(variant, shape, with_infinite_keys(0, shape.seq_k));
  for (int i = 0; i < shape.seq_q; ++i) {
    INFO(variant.name << ": only scores of −∞, row " << i);
    for (int t = 0; t < shape.dim; ++t) REQUIRE(element(nothing.output("o"), i, t) == 0.0f);
    REQUIRE(nothing.output("lse").values[static_cast<std::size_t>(i)] == -infinity);
  }
}

void takes_scores_far_from_zero(const run::AttentionVariant& variant, Attention shape) {
  // All keys padded with the smallest number: the rows' maxima are there, too.
  AttentionInputs padded = problem::make_inputs(shape, 47);
  const auto dim = static_cast<std::size_t>(shape.dim);
  for (std::size_t i = 0; i < padded.q.values.size(); i += dim) padded.q.values[i] = 1.0f;
  for (std::size_t i = 0; i < padded.k.values.size(); i += dim) {
    padded.k.values[i] = shape.dtype == problem::Dtype::fp16 ? -65504.0f : -0x1.fep126f;
  }
  for (const float scale : {1.0f, -0.125f}) {
    shape.scale = scale;
    clean(variant, shape, padded);
  }
  for (const float scale : {3.3e9f, -1e30f, 1e36f}) {
    shape.scale = scale;
    clean(variant, shape, problem::make_inputs(shape, 47));
  }
}

void contains_nan(const run::AttentionVariant& variant, const Attention& shape) {
  REQUIRE(shape.causal);
  const AttentionInputs inputs = problem::make_inputs(shape, 41);
  const run::Outcome before = clean(variant, shape, inputs);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AttentionInputs changed = inputs;
    const std::int64_t dim = inputs.k.shape[3];
    const int key = shape.seq_k - 2;  // seen by the last two queries of every head
    for (std::int64_t head = 0; head < inputs.k.shape[0] * inputs.k.shape[1]; ++head) {
      changed.k.values[static_cast<std::size_t>((head * shape.seq_k + key) * dim)] = bad;
      changed.v.values[static_cast<std::size_t>((head * shape.seq_k + key) * dim + dim / 2)] = bad;
    }
    const run::Outcome after = clean(variant, shape, changed);
    const int rows = shape.seq_q - 2;
    same_bits(rows_of(before.output("o"), 0, rows), rows_of(after.output("o"), 0, rows));
    const std::vector<float> last = rows_of(after.output("o"), shape.seq_q - 1, shape.seq_q);
    REQUIRE(std::any_of(last.begin(), last.end(), [](float x) { return !std::isfinite(x); }));  // NaN is never hidden
  }
}

}  // namespace suite
