// common/run/harness/execute, on attention: a variant is judged by all rules, in every layout and dtype. The variants here
// compute on the host, in memory that the simulator lends, and each faulty one does one thing wrong.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "common/run/family/any_step.h"
#include "common/simt/simt.h"
#include "tests/catch.h"
#include "tests/unit/elements.h"

namespace {

using problem::Attention;
using problem::Dtype;
using run::AttentionLaunch;
using run::AttentionVariant;

template <bool Const>
std::int64_t at(const device::AnyHeads<Const>& view, int batch, int head, int row) {
  return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
}

// Right, but for reading `extra` keys too many.
void compute(const AttentionLaunch& l, int extra = 0) {
  const Attention& a = l.shape;
  auto* s = l.arrays.get<float>("s");
  for (int b = 0; b < a.batch; ++b) {
    for (int h = 0; h < a.heads; ++h) {
      const int kv = h / (a.heads / a.kv_heads);
      for (int i = 0; i < a.seq_q; ++i) {
        const int last = a.last_key(i) + extra;
        float max = -INFINITY, sum = 0;
        for (int j = a.first_key(i); j < last; ++j) {
          s[j] = 0;
          for (int d = 0; d < a.dim; ++d)
            s[j] += get(a.dtype, l.q.data, at(l.q, b, h, i) + d) * get(a.dtype, l.k.data, at(l.k, b, kv, j) + d);
          s[j] *= *a.scale;
          max = std::max(max, s[j]);
        }
        for (int j = a.first_key(i); j < last; ++j) sum += s[j] = std::exp(s[j] - max);
        for (int d = 0; d < a.dim; ++d) {
          float o = 0;
          for (int j = a.first_key(i); j < last; ++j) o += s[j] * get(a.dtype, l.v.data, at(l.v, b, kv, j) + d);
          put(a.dtype, l.o.data, at(l.o, b, h, i) + d, sum > 0 ? o / sum : sum == 0 ? 0.0f : o);
        }
        l.lse[(b * a.heads + h) * a.seq_q + i] = sum == 0 ? -INFINITY : max + std::log(sum);
      }
    }
  }
}

AttentionVariant variant(std::function<void(const AttentionLaunch&)> launch) {
  AttentionVariant v;
  v.name = "fake";
  v.supports.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  v.supports.window = true;
  v.scratch = [](const Attention& a) { return run::Arrays{run::scratch("s", Dtype::fp32, {a.seq_k + 1})}; };
  v.launch = std::move(launch);
  return v;
}

const AttentionVariant right = variant([](const AttentionLaunch& l) { compute(l); });

Attention shape() {
  return problem::resolve({.batch = 2, .heads = 4, .kv_heads = 2, .seq_q = 19, .seq_k = 14, .dim = 24, .causal = true});
}

run::Outcome outcome(const AttentionVariant& v, const run::ExecuteOptions& options = {}, const Attention& a = shape()) {
  return run::execute(v, a, problem::make_inputs(a, 1), options);
}

}  // namespace

TEST_CASE("a right variant passes in every layout and dtype") {
  for (const bool tokens_first : {false, true}) {
    for (const bool gaps : {false, true}) {
      for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
        for (const int window : {0, 3}) {
          Attention a = shape();
          a.dtype = dtype;
          a.window = window;
          const auto result = outcome(right, {.layout = {tokens_first, gaps}}, a);
          INFO(result.verdict->reason());
          CHECK(result.pass());
          CHECK(result.verdict->repeatable == true);
          CHECK(result.output("o").shape == std::vector<std::int64_t>{2, 4, 19, 24});
          CHECK(result.output("lse").shape == std::vector<std::int64_t>{2, 4, 19});
        }
      }
    }
  }
}

TEST_CASE("special inputs pass too") {
  for (const auto kind : {problem::InputKind::large, problem::InputKind::one_hot, problem::InputKind::uniform}) {
    const auto result = run::execute(right, shape(), problem::make_inputs(shape(), 1, kind));
    INFO(result.verdict->reason());
    CHECK(result.pass());
  }
}

TEST_CASE("an element that is not written is seen, in O and in LSE") {
  const auto last_o = outcome(variant([](const AttentionLaunch& l) {
    compute(l);
    put(Dtype::fp32, l.o.data, at(l.o, 1, 3, 18) + 23, std::bit_cast<float>(runtime::poison_word));
  }));
  CHECK_FALSE(last_o.pass());
  CHECK(last_o.verdict->reason().find("not written") != std::string::npos);
  const auto no_lse = outcome(variant([](const AttentionLaunch& l) {
    const float kept = l.lse[0];
    compute(l);
    l.lse[0] = kept;
  }));
  CHECK_FALSE(no_lse.pass());
}

TEST_CASE("reading the key after the last meets a NaN where there are gaps") {
  const Attention a = problem::resolve({.heads = 2, .kv_heads = 2, .seq_q = 5, .seq_k = 7, .dim = 8});
  CHECK_FALSE(outcome(variant([](const AttentionLaunch& l) { compute(l, 1); }), {.layout = {.gaps = true}}, a).pass());
}

TEST_CASE("a write into a gap or beyond a buffer is seen") {
  for (const bool tokens_first : {false, true}) {
    const auto into_gap = variant([](const AttentionLaunch& l) {
      compute(l);
      put(Dtype::fp32, l.o.data, at(l.o, 0, 1, 2) + 24, 1.0f);
    });
    const auto result = outcome(into_gap, {.layout = {tokens_first, true}});
    CHECK_FALSE(result.verdict->guards_intact);
    CHECK_FALSE(result.pass());
  }
  const auto beyond_lse = outcome(variant([](const AttentionLaunch& l) {
    compute(l);
    l.lse[2 * 4 * 19] = 0;
  }));
  CHECK_FALSE(beyond_lse.verdict->guards_intact);
  const auto beyond_scratch = outcome(variant([](const AttentionLaunch& l) {
    compute(l);
    l.arrays.get<float>("s")[-1] = 0;
  }));
  CHECK_FALSE(beyond_scratch.verdict->guards_intact);
}

TEST_CASE("two runs must agree by a bit, unless the variant does not promise it") {
  int runs = 0;
  AttentionVariant changing = variant([&](const AttentionLaunch& l) {
    compute(l);
    if (++runs % 2 == 0) l.lse[5] = std::nextafter(l.lse[5] == -INFINITY ? 0 : l.lse[5], 100.0f);
  });
  const Attention a = problem::resolve({.seq_q = 8, .seq_k = 8, .dim = 8});
  auto result = outcome(changing, {}, a);
  CHECK(result.verdict->repeatable == false);
  CHECK_FALSE(result.pass());
  changing.deterministic = false;
  runs = 0;
  result = outcome(changing, {}, a);
  CHECK(!result.verdict->repeatable);
  CHECK(result.pass());
}

// What the order of threads decides on a GPU, this variant takes from the seed.
TEST_CASE("the second run is under another seed: bits that depend on the order are seen, and the first seed is set again") {
  const Attention a = problem::resolve({.seq_q = 8, .seq_k = 8, .dim = 8});
  std::vector<std::uint64_t> seeds;
  AttentionVariant by_order = variant([&](const AttentionLaunch& l) {
    compute(l);
    seeds.push_back(simt::options().seed);
    l.lse[5] += 1e-6f * static_cast<float>(simt::options().seed % 2);
  });
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{7}, ~std::uint64_t{0}}) {
    runtime::configure({.seed = seed});
    seeds.clear();
    const auto result = outcome(by_order, {}, a);
    CHECK(seeds == std::vector{seed, seed + 1});
    CHECK(result.verdict->reason() == "two runs gave different bits");
    CHECK(simt::options().seed == seed);
    by_order.deterministic = false;
    CHECK(outcome(by_order, {}, a).pass());
    by_order.deterministic = true;
  }
  runtime::configure({});
  const AttentionVariant thrower = variant([&](const AttentionLaunch& l) {
    compute(l);
    if (simt::options().seed == 2) throw std::runtime_error("in the second run");
  });
  CHECK_THROWS_AS(outcome(thrower, {}, a), std::runtime_error);
  CHECK(simt::options().seed == 1);
}

TEST_CASE("what the second run writes around a buffer is seen, too") {
  int runs = 0;
  const auto second = variant([&](const AttentionLaunch& l) {
    compute(l);
    if (++runs == 2) l.lse[8] = 0;
  });
  const auto result = outcome(second, {}, problem::resolve({.seq_q = 8, .seq_k = 8, .dim = 8}));
  CHECK_FALSE(result.verdict->guards_intact);
}

TEST_CASE("a variant that gives out what its last call computed is rejected") {
  std::vector<float> o, lse;
  const auto late = variant([&](const AttentionLaunch& l) {
    compute(l);
    auto* now = static_cast<float*>(l.o.data);
    std::vector<float> last_o = std::exchange(o, {now, now + 64}), last_lse = std::exchange(lse, {l.lse, l.lse + 8});
    std::copy(last_o.begin(), last_o.end(), now);
    std::copy(last_lse.begin(), last_lse.end(), l.lse);
  });
  const Attention a = problem::resolve({.seq_q = 8, .seq_k = 8, .dim = 8});
  CHECK(outcome(late, {}, a).pass());  // its first call
  CHECK_FALSE(run::execute(late, a, problem::make_inputs(a, 2)).pass());
}

TEST_CASE("outputs are judged by name, in whatever order they come, and each of them once") {
  const Attention a = shape();
  const auto inputs = problem::make_inputs(a, 1);
  auto outputs = outcome(right).outputs;
  const run::AttentionTruth truth(a, inputs);
  std::reverse(outputs.begin(), outputs.end());
  const auto verdicts = run::AttentionFamily::judge(truth, outputs);
  CHECK((verdicts[0].name == "O" && verdicts[0].pass && verdicts[1].name == "LSE" && verdicts[1].pass));
  outputs.pop_back();  // O
  CHECK_THROWS_AS(run::AttentionFamily::judge(truth, outputs), std::out_of_range);

  const run::Program program = run::program_of(right, a, [&] { return run::AttentionFamily::given(a, inputs); });
  const auto judged = [&](const std::vector<const char*>& names) {
    return run::run_program(program,
                            [&](const std::vector<run::NamedTensor>&) {
                              std::vector<check::TensorVerdict> all;
                              for (const char* name : names) all.emplace_back().name = name;
                              return all;
                            },
                            {});
  };
  CHECK(judged({"O", "LSE"}).pass());
  CHECK(judged({"lse", "q", "o"}).pass());  // of inputs there may be verdicts, too
  CHECK_THROWS_AS(judged({"O"}), std::logic_error);
  CHECK_THROWS_AS(judged({"O", "O", "LSE"}), std::logic_error);
  CHECK_THROWS_AS(judged({}), std::logic_error);
}

TEST_CASE("a plan is made before each launch of a run, in memory of its own, and never without one") {
  const Attention a = shape();
  const auto inputs = problem::make_inputs(a, 1);
  int plans = 0, launches = 0;
  run::AttentionVariant variant = right;
  variant.scratch = [](const Attention& shape) {
    return right.scratch_of(shape) + run::Arrays{run::of_plan("numbers", run::Element::int32(), {3})};
  };
  variant.plan = [&](const run::AttentionLaunch& l) {
    CHECK(l.arrays.get<int>("numbers") != nullptr);
    CHECK(plans++ == launches);
  };
  variant.launch = [&](const run::AttentionLaunch& l) {
    CHECK(++launches == plans);
    right.launch(l);
  };
  CHECK(run::execute(variant, a, inputs).pass());
  CHECK(plans == 2);  // the second run is for bits
  CHECK(run::scratch_bytes(variant.scratch_of(a)) == run::scratch_bytes(right.scratch_of(a)) + 12);
}

TEST_CASE("a mask of dropout that was asked for and is not there is no pass") {
  Attention a = shape();
  a.dropout = 26;
  a.writes_mask = true;
  const run::AttentionTruth truth(a, problem::make_inputs(a, 1));
  CHECK_THROWS_AS(run::AttentionFamily::judge(truth, outcome(right).outputs), std::out_of_range);
}

TEST_CASE("memory beyond the simulator's share of the machine is refused, and the share is named as it is") {
  try {
    const runtime::Buffer all("all", runtime::properties().memory_bytes * simt::memory_share);
    FAIL("there is no such memory");
  } catch (const runtime::OutOfMemory& error) {
    CHECK(std::string(error.what()).find("asked for by 'all', ") != std::string::npos);
    CHECK(std::string(error.what()).find("the simulator uses 1/10 of this machine's memory") != std::string::npos);
  }
  std::ifstream info("/proc/meminfo");
  std::string field;
  std::size_t kib = 0;
  info >> field >> kib;
  REQUIRE(field == "MemTotal:");
  CHECK(simt::memory_available() <= kib * 1024 / 8);
}

TEST_CASE("what cannot be served is refused") {
  AttentionVariant narrow = right;
  narrow.supports = {.dims = {64, 128}, .causal = false};
  CHECK_THROWS_AS(outcome(narrow), std::invalid_argument);
  const auto reason = run::refusal(narrow.supports, problem::resolve({.dim = 24}));
  REQUIRE(reason);
  CHECK(*reason == "does not support dim 24; it supports fp32; dim 64, 128; not causal; any length; grouped heads");
  Attention narrower = shape();
  narrower.dtype = Dtype::fp16;
  CHECK_THROWS_AS(run::execute(right, narrower, problem::make_inputs(shape(), 1)), std::invalid_argument);
  CHECK_THROWS_AS(run::execute(right, shape(), problem::make_inputs(problem::Attention{}, 1)), std::invalid_argument);
  CHECK_THROWS_AS(outcome(variant([](const AttentionLaunch& l) { l.arrays.get<float>("P"); })), std::logic_error);
}

TEST_CASE("where not all rows are compared, every element must still be written") {
  const Attention a = problem::resolve({.heads = 8, .kv_heads = 8, .seq_q = 1024, .seq_k = 1024, .dim = 64});
  const auto inputs = problem::make_inputs(a, 1);
  const run::AttentionTruth truth(a, inputs);
  const auto from_reference = [&](bool tamper) {
    return variant([&, tamper](const AttentionLaunch& l) {
      const reference::AttentionSpec spec{1, 8, 8, 1024, 1024, 64, false, 0, *a.scale};
      static const auto forward = reference::forward(spec, reference::all_rows(spec), std::span<const float>(inputs.q.values),
                                                     inputs.k.values, inputs.v.values);
      for (std::size_t n = 0; n < forward.o.size(); ++n) static_cast<float*>(l.o.data)[n] = static_cast<float>(forward.o[n]);
      for (std::size_t n = 0; n < forward.lse.size(); ++n) l.lse[n] = static_cast<float>(forward.lse[n]);
      if (tamper) std::memcpy(static_cast<float*>(l.o.data) + 777 * 64 + 1, &runtime::poison_word, 4);
    });
  };
  const auto good = run::execute(from_reference(false), a, inputs, {}, &truth);
  CHECK(good.pass());
  CHECK(good.verdict->tensors[0].rows_checked == 8 * 64);
  CHECK_FALSE(run::execute(from_reference(true), a, inputs, {}, &truth).pass());
}

TEST_CASE("without a check there is one run and no verdict") {
  int runs = 0;
  const auto result = outcome(variant([&](const AttentionLaunch& l) {
                                compute(l);
                                ++runs;
                              }),
                              {.check = false});
  CHECK(runs == 1);
  CHECK(!result.verdict);
  CHECK(result.pass());
}

TEST_CASE("a layer runs on parts of one array, and each stage is judged") {
  run::AttentionStep step;
  step.linear = [](const run::ProjectionLaunch& l) {
    for (int row = 0; row < l.rows; ++row) {
      for (int o = 0; o < l.out; ++o) {
        float sum = 0;
        for (int i = 0; i < l.in; ++i) sum += l.x[row * l.in + i] * l.weight[o * l.in + i];
        l.y[row * l.out + o] = sum + l.bias[o];
      }
    }
  };
  const auto random = [](std::vector<std::int64_t> shape, std::uint64_t seed) {
    problem::Attention a{.seq_q = static_cast<int>(problem::Tensor::count(shape)), .dim = 1};
    problem::Tensor tensor = problem::make_inputs(a, seed).q;
    tensor.shape = shape;
    return tensor;
  };
  run::LayerInputs in{random({2, 9, 24}, 1), random({72, 24}, 2), random({72}, 3), random({24, 24}, 4), random({24}, 5)};
  const Attention a =
      problem::resolve({.batch = 2, .heads = 3, .kv_heads = 3, .seq_q = 9, .seq_k = 9, .dim = 8, .causal = true});
  auto result = run::execute_layer(step, right, a, in);
  INFO(result.verdict->reason());
  CHECK(result.pass());
  CHECK(result.output("y").shape == std::vector<std::int64_t>{2, 9, 24});

  in.x.values[24 * 5] = NAN;  // token 5 of batch entry 0: seen by tokens 5 to 8
  result = run::execute_layer(step, right, a, in);
  CHECK(result.pass());
  CHECK(result.verdict->tensors[2].rows_exempt == 0);
  CHECK(std::isnan(result.output("y").values[24 * 5]));
  CHECK_FALSE(std::isnan(result.output("y").values[24 * 4]));
  run::AttentionStep hiding = step;  // a NaN of y that is missing, and one too many
  for (const auto& [element, value] : {std::pair(24 * 5 + 3, 1.0f), std::pair(24 * 4 + 3, NAN)}) {
    hiding.linear = [&, at = element, to = value](const run::ProjectionLaunch& l) {
      step.linear(l);
      if (l.out == 24) l.y[at] = to;
    };
    CHECK_FALSE(run::execute_layer(hiding, right, a, in).pass());
  }
  in.x.values[24 * 5] = INFINITY;
  result = run::execute_layer(step, right, a, in);
  CHECK(result.pass());
  CHECK(result.verdict->tensors[2].rows_exempt == 4);
  CHECK(result.verdict->tensors[0].rows_exempt == 4 * 3);
  in.x.values[24 * 5] = 0;

  in.out_proj_bias.values[0] = INFINITY;
  CHECK(run::execute_layer(step, right, a, in).pass());
  in.out_proj_bias.values[0] = 0;

  run::AttentionStep wrong = step;
  wrong.linear = [&](const run::ProjectionLaunch& l) {
    step.linear(l);
    l.y[7] += 1e-3f;
  };
  CHECK_FALSE(run::execute_layer(wrong, right, a, in).pass());
  Attention odd = a;
  odd.scale = 3;
  CHECK_THROWS_AS(run::execute_layer(step, right, odd, in), std::invalid_argument);
  step.linear = nullptr;
  CHECK_THROWS_AS(run::execute_layer(step, right, a, in), std::invalid_argument);
}
