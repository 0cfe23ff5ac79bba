#include "tests/suites/backward_suite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>

#include "tests/catch.h"
#include "tests/suites/tiers.h"

namespace suite {
namespace {

using problem::Attention;
using problem::Backward;
using problem::BackwardInputs;
using problem::Tensor;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

void same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto difference = check::first_difference(a, b);
  INFO("first difference at element " << difference.value_or(-1));
  REQUIRE(!difference);
}

// The rows of [batch, heads, rows, dim] whose number in their head is picked, one after the other for all heads.
std::vector<float> picked_rows(const Tensor& tensor, const std::function<bool(int)>& picked) {
  const std::int64_t rows = tensor.shape[2], dim = tensor.shape[3];
  std::vector<float> values;
  for (std::int64_t row = 0; row < std::ssize(tensor.values) / dim; ++row) {
    if (!picked(static_cast<int>(row % rows))) continue;
    values.insert(values.end(), tensor.values.begin() + row * dim, tensor.values.begin() + (row + 1) * dim);
  }
  return values;
}

// In every head, rows [first, last) become those of another tensor.
void replace_rows(Tensor& tensor, const Tensor& other, int first, int last) {
  const std::int64_t rows = tensor.shape[2], dim = tensor.shape[3];
  for (std::int64_t head = 0; head < tensor.shape[0] * tensor.shape[1]; ++head) {
    std::copy_n(other.values.begin() + (head * rows + first) * dim, (last - first) * dim,
                tensor.values.begin() + (head * rows + first) * dim);
  }
}

// Some of the keys [first, last).
bool sees(const Attention& shape, int query, int first, int last) {
  return std::max(shape.first_key(query), first) < std::min(shape.last_key(query), last);
}

bool is_seen(const Attention& shape, int key) {
  for (int i = 0; i < shape.seq_q; ++i) {
    if (sees(shape, i, key, key + 1)) return true;
  }
  return false;
}

// Outputs whose bits a variant promises.
std::vector<std::string> repeatable_outputs(const run::BackwardVariant& variant) {
  return variant.deterministic ? std::vector<std::string>{"dq", "dk", "dv"} : std::vector<std::string>{"dk", "dv"};
}

void same_outputs(const run::BackwardVariant& variant, const run::Outcome& a, const run::Outcome& b) {
  for (const std::string& name : repeatable_outputs(variant)) {
    INFO("variant " << variant.name << ": " << name);
    same_bits(a.output(name).values, b.output(name).values);
  }
}

bool all_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0f; });
}

BackwardVariants supporting(const BackwardVariants& variants, const Attention& shape) {
  BackwardVariants some;
  std::copy_if(variants.begin(), variants.end(), std::back_inserter(some),
               [&](const run::BackwardVariant& variant) { return !run::refusal(variant.supports, shape); });
  return some;
}

}  // namespace

BackwardCase ready(const run::BackwardStep& step, const Attention& shape, BackwardInputs inputs) {
  BackwardCase c{{shape}, std::move(inputs), nullptr};
  run::run_forward(step, c.shape, c.inputs);
  c.truth = std::make_shared<run::BackwardTruth>(c.shape, c.inputs);
  return c;
}

BackwardCase ready(const run::BackwardStep& step, const Case& c, std::uint64_t seed) {
  return ready(step, c.shape, problem::make_inputs(Backward{c.shape}, seed, c.inputs));
}

std::vector<BackwardCase> ready(const run::BackwardStep& step, const std::vector<Case>& cases) {
  std::vector<BackwardCase> all;
  for (const Case& c : cases) all.push_back(ready(step, c, 1 + all.size()));
  return all;
}

run::Outcome clean(const run::BackwardVariant& variant, const BackwardCase& c, const run::ExecuteOptions& options) {
  INFO("variant " << variant.name << ", " << problem::to_string(c.shape) << ", window " << c.shape.window << ", scale "
                  << *c.shape.scale);
  run::Outcome outcome = run::execute(variant, c.shape, c.inputs, options, c.truth.get());
  for (const runtime::Finding& finding : outcome.findings) {
    INFO(finding.text);
    CHECK(outcome.findings.empty());
  }
  if (outcome.verdict) {
    INFO(outcome.verdict->reason());
    CHECK(outcome.verdict->pass());
  }
  return outcome;
}

int passes(const run::BackwardVariant& variant, const std::vector<BackwardCase>& cases) {
  int taken = 0;
  for (const BackwardCase& c : cases) {
    if (const auto reason = run::refusal(variant.supports, c.shape)) {
      const auto& dtypes = variant.supports.dtypes;
      const auto& dims = variant.supports.dims;
      INFO("variant " << variant.name << ", " << problem::to_string(c.shape) << ", refused: " << *reason);
      REQUIRE((std::find(dtypes.begin(), dtypes.end(), c.shape.dtype) == dtypes.end() ||
               (!dims.empty() && std::find(dims.begin(), dims.end(), c.shape.dim) == dims.end())));
      continue;
    }
    clean(variant, c, {.layout = {taken % 2 == 1, taken % 4 >= 2}});
    ++taken;
  }
  return taken;
}

void passes_under_schedules(const run::BackwardVariant& variant, const std::vector<BackwardCase>& cases, Seeds seeds,
                            bool all_cases) {
  std::map<std::size_t, run::Outcome> first;  // of each case
  std::size_t turn = 0;
  under_schedules(seeds, [&](std::uint64_t seed) {
    INFO("seed " << seed);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      // From one seed to the next, a case meets another completion mode.
      if (!all_cases && i != (turn + turn / 3) % cases.size()) continue;
      run::Outcome outcome = clean(variant, cases[i]);
      const auto [at, is_first] = first.try_emplace(i, std::move(outcome));
      if (!is_first) same_outputs(variant, at->second, outcome);
    }
    ++turn;
  });
}

void repeats(const run::BackwardVariant& variant, const BackwardCase& c) {
  const run::Outcome outcome = clean(variant, c);
  runtime::in_another_order([&] { same_outputs(variant, outcome, clean(variant, c)); });
}

void depends_on_visible_pairs(const run::BackwardStep& step, const BackwardVariants& variants, const Attention& shape) {
  const BackwardCase c = ready(step, {shape}, 11);
  const BackwardInputs other = problem::make_inputs(c.shape, 12);
  struct Change {
    std::string text;
    BackwardCase changed;
    std::function<bool(int)> same_query, same_key;
  };
  std::vector<Change> changes;
  constexpr int parts = 4;
  for (int part = 0; part < parts; ++part) {
    const int first = part * shape.seq_q / parts, last = (part + 1) * shape.seq_q / parts;
    BackwardInputs inputs{c.inputs.q, c.inputs.k, c.inputs.v, c.inputs.d_o};
    replace_rows(inputs.q, other.q, first, last);
    replace_rows(inputs.d_o, other.d_o, first, last);
    changes.push_back({"Q and dO of queries " + std::to_string(first) + " to " + std::to_string(last - 1),
                       ready(step, shape, std::move(inputs)), [=](int i) { return i < first || i >= last; },
                       [=](int key) {  // no changed query sees it
                         for (int i = first; i < last; ++i) {
                           if (sees(shape, i, key, key + 1)) return false;
                         }
                         return true;
                       }});
  }
  for (int part = 0; part < parts; ++part) {
    const int first = part * shape.seq_k / parts, last = (part + 1) * shape.seq_k / parts;
    BackwardInputs inputs{c.inputs.q, c.inputs.k, c.inputs.v, c.inputs.d_o};
    replace_rows(inputs.k, other.k, first, last);
    replace_rows(inputs.v, other.v, first, last);
    changes.push_back({"K and V of keys " + std::to_string(first) + " to " + std::to_string(last - 1),
                       ready(step, shape, std::move(inputs)), [=](int i) { return !sees(shape, i, first, last); },
                       [=](int key) {  // no query sees it and a changed one
                         for (int i = 0; i < shape.seq_q; ++i) {
                           if (sees(shape, i, key, key + 1) && sees(shape, i, first, last)) return false;
                         }
                         return key < first || key >= last;
                       }});
  }
  for (const run::BackwardVariant& variant : supporting(variants, shape)) {
    const run::Outcome before = clean(variant, c);
    std::size_t keys_compared = 0;
    int reached = 0;  // changes that did change some keys' gradients
    for (const Change& change : changes) {
      const run::Outcome after = clean(variant, change.changed);
      for (const std::string& name : repeatable_outputs(variant)) {
        const auto& picked = name == "dq" ? change.same_query : change.same_key;
        const std::vector<float> rows = picked_rows(before.output(name), picked);
        INFO("variant " << variant.name << ", " << problem::to_string(shape) << ": " << name << " after a change of "
                        << change.text);
        same_bits(rows, picked_rows(after.output(name), picked));
        if (name == "dk") keys_compared += rows.size();
      }
      reached += check::first_difference(before.output("dk").values, after.output("dk").values).has_value();
    }
    REQUIRE((keys_compared > 0 && reached >= parts));  // of the other half, perhaps nobody sees the changed keys
  }
}

void heads_are_independent(const run::BackwardStep& step, const BackwardVariants& variants, const Attention& shape) {
  const BackwardCase c = ready(step, {shape}, 21);
  const int group = shape.heads / shape.kv_heads;
  Attention single = shape;
  single.batch = single.kv_heads = 1;
  single.heads = group;
  const BackwardVariants some = supporting(variants, shape);
  std::vector<run::Outcome> all;
  for (const run::BackwardVariant& variant : some) all.push_back(clean(variant, c));
  const auto slice = [](const Tensor& tensor, int batch, std::int64_t first, std::int64_t heads) {
    const std::int64_t elements = tensor.shape[2] * tensor.shape[3];
    Tensor part({1, heads, tensor.shape[2], tensor.shape[3]});
    std::copy_n(tensor.values.begin() + (batch * tensor.shape[1] + first) * elements, heads * elements, part.values.begin());
    return part;
  };
  for (int batch = 0; batch < shape.batch; ++batch) {
    for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      const auto queries = [&](const Tensor& tensor) { return slice(tensor, batch, kv_head * group, group); };
      const auto keys = [&](const Tensor& tensor) { return slice(tensor, batch, kv_head, 1); };
      const BackwardInputs& in = c.inputs;
      const BackwardCase alone = ready(step, single, {queries(in.q), keys(in.k), keys(in.v), queries(in.d_o)});
      for (std::size_t i = 0; i < some.size(); ++i) {
        const run::BackwardVariant& variant = some[i];
        const run::Outcome one = clean(variant, alone);
        for (const std::string& name : repeatable_outputs(variant)) {
          INFO("variant " << variant.name << ", batch " << batch << ", key/value head " << kv_head << " alone: " << name);
          const Tensor& tensor = all[i].output(name);
          same_bits((name == "dq" ? queries(tensor) : keys(tensor)).values, one.output(name).values);
        }
      }
    }
  }
}

void empty_rows_are_zero(const run::BackwardStep& step, const BackwardVariants& variants, const Attention& shape) {
  const auto empty_query = [&](int i) { return !sees(shape, i, 0, shape.seq_k); };
  const auto unseen_key = [&](int key) { return !is_seen(shape, key); };
  const BackwardInputs inputs = problem::make_inputs(Backward{shape}, 31);
  BackwardInputs with_nan = inputs;
  const Tensor nan_queries(inputs.q.shape, quiet_nan), nan_keys(inputs.k.shape, quiet_nan);
  for (int i = 0; i < shape.seq_q; ++i) {
    if (!empty_query(i)) continue;
    replace_rows(with_nan.q, nan_queries, i, i + 1);
    replace_rows(with_nan.d_o, nan_queries, i, i + 1);
  }
  for (int key = 0; key < shape.seq_k; ++key) {
    if (!unseen_key(key)) continue;
    replace_rows(with_nan.k, nan_keys, key, key + 1);
    replace_rows(with_nan.v, nan_keys, key, key + 1);
  }
  const BackwardCase cases[] = {ready(step, shape, inputs), ready(step, shape, with_nan)};
  for (const run::BackwardVariant& variant : supporting(variants, shape)) {
    for (const BackwardCase& c : cases) {
      INFO("variant " << variant.name << ", " << problem::to_string(shape)
                      << (&c == cases ? "" : ", NaN in the rows that nobody sees"));
      const run::Outcome outcome = clean(variant, c);
      const std::vector<float> dq = picked_rows(outcome.output("dq"), empty_query),
                               dk = picked_rows(outcome.output("dk"), unseen_key),
                               dv = picked_rows(outcome.output("dv"), unseen_key);
      REQUIRE(!(dq.empty() && dk.empty()));
      REQUIRE((all_zero(dq) && all_zero(dk) && all_zero(dv)));
    }
  }
}

void contains_nan(const run::BackwardStep& step, const BackwardVariants& variants, const Attention& shape, bool all_rows) {
  const BackwardInputs inputs = problem::make_inputs(Backward{shape}, 41);
  const auto count_odd = [](const Tensor& tensor) {
    return std::count_if(tensor.values.begin(), tensor.values.end(), [](float x) { return !std::isfinite(x); });
  };
  struct Place {
    const char* name;
    Tensor BackwardInputs::*tensor;
  };
  std::size_t turn = 0;
  for (const Place& place : {Place{"Q", &BackwardInputs::q}, Place{"K", &BackwardInputs::k}, Place{"V", &BackwardInputs::v},
                             Place{"dO", &BackwardInputs::d_o}}) {
    for (const float bad : {quiet_nan, infinity}) {
      const std::int64_t rows = (inputs.*place.tensor).shape[2];
      std::vector<std::int64_t> places = {0, rows / 2, rows - 1};
      if (!all_rows) places = {places[turn++ % places.size()]};
      for (const std::int64_t row : places) {
        BackwardInputs changed = inputs;
        (changed.*place.tensor).values[static_cast<std::size_t>(row * shape.dim + shape.dim / 3)] = bad;  // of the first head
        const BackwardCase c = ready(step, shape, std::move(changed));
        const int place_row = static_cast<int>(row);
        const bool of_queries = place.tensor == &BackwardInputs::q || place.tensor == &BackwardInputs::d_o;
        const bool shows = of_queries ? sees(shape, place_row, 0, shape.seq_k) : is_seen(shape, place_row);
        for (const run::BackwardVariant& variant : supporting(variants, shape)) {
          const run::Outcome outcome = run::execute(variant, c.shape, c.inputs, {}, c.truth.get());
          INFO("variant " << variant.name << ", " << problem::to_string(shape) << ": " << bad << " in row " << row << " of "
                          << place.name << ": " << outcome.verdict->reason());
          CHECK(outcome.pass());
          CHECK((count_odd(outcome.output("dq")) + count_odd(outcome.output("dk")) + count_odd(outcome.output("dv")) > 0) ==
                shows);
        }
      }
    }
  }
}

void rejects_wrong_forward(const run::BackwardStep& step, const BackwardVariants& variants, const Attention& shape) {
  const BackwardCase right = ready(step, {shape}, 51);
  struct Wrong {
    std::string name;
    BackwardCase c;
  };
  std::vector<Wrong> all;
  const auto add = [&](const char* name, const std::function<void(BackwardInputs&)>& spoil) {
    BackwardInputs inputs = right.inputs;
    spoil(inputs);
    all.push_back({name, {right.shape, inputs, std::make_shared<run::BackwardTruth>(right.shape, inputs)}});
  };
  add("O", [](BackwardInputs& in) { std::fill(in.o.values.begin(), in.o.values.end(), 0.0f); });
  add("O", [&](BackwardInputs& in) {  // the last row alone
    std::for_each(in.o.values.end() - shape.dim, in.o.values.end(), [](float& x) { x *= 2.0f; });
  });
  add("LSE", [](BackwardInputs& in) { in.lse.values.back() += 0.05f; });
  add("LSE", [](BackwardInputs& in) {
    for (float& lse : in.lse.values) lse *= 1.44269504f;  // in base 2
  });
  for (const run::BackwardVariant& variant : supporting(variants, shape)) {
    clean(variant, right);
    for (const auto& [name, c] : all) {
      const run::Outcome outcome = run::execute(variant, c.shape, c.inputs, {}, c.truth.get());
      INFO("variant " << variant.name << ": a wrong " << name);
      REQUIRE(!outcome.verdict->pass());
      for (const check::TensorVerdict& tensor : outcome.verdict->tensors) {
        if (tensor.name == name) CHECK(!tensor.pass);
      }
    }
  }
}

}  // namespace suite
