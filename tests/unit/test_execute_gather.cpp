// As test_execute.cpp, for the toy family (tests/tools/toy_family): arrays of four types, integers in and out, and an output
// whose length only the launch knows. And its command line, with files of integers.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/problem/npy.h"
#include "common/run/family/gather.h"
#include "tests/catch.h"
#include "tests/unit/elements.h"
#include "tests/unit/temporary_folder.h"

namespace {

using problem::Dtype;
using problem::Element;
using problem::Integers;
using run::Gather;
using run::GatherLaunch;
using run::GatherVariant;

void compute(const GatherLaunch& l) {
  const Gather& g = l.shape;
  std::fill_n(l.taken, g.rows, 0);
  for (std::int64_t n = 0; n < g.ids; ++n) {
    ++l.taken[l.ids[n]];
    for (int c = 0; c < g.cols; ++c) {
      l.y[n * g.cols + c] = get(g.dtype, l.x, std::int64_t{l.ids[n]} * g.cols + c) * static_cast<float>(l.factors[c]);
    }
  }
  *l.missed_count = 0;
  for (int row = 0; row < g.rows; ++row) {
    if (l.taken[row] > 0) continue;
    for (int c = 0; c < g.cols; ++c) {
      put(g.dtype, l.rest, std::int64_t{*l.missed_count} * g.cols + c, get(g.dtype, l.x, std::int64_t{row} * g.cols + c));
    }
    l.missed[(*l.missed_count)++] = row;
  }
}

GatherVariant variant(std::function<void(const GatherLaunch&)> launch) {
  return {.name = "fake",
          .idea = "",
          .cost = [](const Gather&) { return std::vector<problem::KernelCost>{}; },
          .launch = std::move(launch)};
}

// Right, and then something wrong is done.
GatherVariant broken(const std::function<void(const GatherLaunch&)>& fault) {
  return variant([=](const GatherLaunch& l) {
    compute(l);
    fault(l);
  });
}

constexpr Gather shape{.rows = 20, .cols = 7, .ids = 9, .dtype = Dtype::bf16};

run::Outcome outcome(const GatherVariant& v, const Gather& g = shape) { return run::execute(v, g, run::make_inputs(g, 1)); }

std::string reason(const std::function<void(const GatherLaunch&)>& fault) { return outcome(broken(fault)).verdict->reason(); }

int command(const run::GatherVariant& v, std::vector<std::string> words) {
  const run::GatherStep step{.name = "98_gather",
                             .question = "How little is a family?",
                             .default_shape = shape,
                             .default_variant = "fake",
                             .variants = {v}};
  words.insert(words.begin(), "98_gather");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return run::step_main(static_cast<int>(arguments.size()), arguments.data(), step);
}

}  // namespace

TEST_CASE("an output has as many entries as the launch says, in each type") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const int ids : {1, 9, 1000}) {  // of 20 rows 19, some and none are missed
      const Gather g{.rows = 20, .cols = 7, .ids = ids, .dtype = dtype};
      const run::Outcome right = outcome(variant(compute), g);
      INFO(right.verdict->reason());
      CHECK(right.pass());
      const Integers& missed = run::integers_of(right.outputs, "missed");
      CHECK(missed.shape[0] == run::integers_of(right.outputs, "missed_count").values[0]);
      CHECK(right.output("rest").shape == std::vector<std::int64_t>{missed.shape[0], 7});
      CHECK((ids == 1 ? missed.shape[0] == 19 : ids == 1000 ? missed.shape[0] == 0 : missed.shape[0] > 0));
    }
  }
  CHECK_THROWS_AS(outcome(variant(compute), {.rows = 20, .cols = 7, .ids = 1, .dtype = Dtype::fp32}), std::invalid_argument);
}

TEST_CASE("an integer that is off by one, a wrong count and an entry too few are rejected by name") {
  CHECK(reason([](const GatherLaunch&) {}).empty());
  CHECK(reason([](const GatherLaunch& l) { ++l.taken[3]; }).starts_with("taken: element [3] is "));
  CHECK(reason([](const GatherLaunch& l) { --*l.missed_count; }).starts_with("rest: its shape is ["));
  CHECK(reason([](const GatherLaunch& l) { *l.missed_count = -1; }) != "");
  CHECK(reason([](const GatherLaunch& l) { put(shape.dtype, l.rest, 0, 99); }).starts_with("rest: row (0)"));
  CHECK(reason([](const GatherLaunch& l) { l.missed[*l.missed_count - 1] ^= 1; }).starts_with("missed: element ["));
  CHECK(reason([](const GatherLaunch& l) {
          l.taken[19] = static_cast<std::int32_t>(check::poison_word);
        }).find("nobody wrote") != std::string::npos);
  CHECK(reason([](const GatherLaunch& l) { l.y[0] = std::nextafter(l.y[0], 1e9f); }).starts_with("y: row (0): error "));
  CHECK(reason([](const GatherLaunch& l) { l.missed[l.shape.rows] = 0; }) == "memory before or after a buffer was written");
  int launches = 0;
  CHECK(reason([&](const GatherLaunch& l) {  // of the second run
          if (++launches == 2) std::swap(l.missed[0], l.missed[1]);
        }) == "two runs gave different bits");
  launches = 0;
  CHECK(reason([&](const GatherLaunch& l) {
          if (++launches == 2) --*l.missed_count;
        }) == "two runs gave different bits");
}

TEST_CASE("an entry that nobody wrote is rejected, though the truth is NaN") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    const Gather g{.rows = 20, .cols = 7, .ids = 9, .dtype = dtype};
    run::GatherInputs inputs = run::make_inputs(g, 1);
    std::fill(inputs.x.values.begin(), inputs.x.values.end(), std::numeric_limits<float>::quiet_NaN());
    CHECK(run::execute(variant(compute), g, inputs).pass());
    const auto forgets = broken([&](const GatherLaunch& l) { std::memcpy(l.rest, &check::poison_word, 2); });
    CHECK(run::execute(forgets, g, inputs).verdict->reason() == "rest: row (0): element 0 was not written");
  }
}

TEST_CASE("the command line reads and writes files of integers") {
  const TemporaryFolder folder;
  const std::string in = (folder / "in").string(), out = (folder / "out").string();
  const std::string json = (folder / "report.json").string();
  std::filesystem::create_directories(in);
  const run::GatherInputs inputs = run::make_inputs(shape, 3);
  problem::write_npy(in + "/x.npy", inputs.x, Dtype::bf16);
  problem::write_npy(in + "/factors.npy", inputs.factors, Element::int8());
  problem::write_npy(in + "/ids.npy", inputs.ids, Element::int32());
  CHECK(command(variant(compute), {"--input", in, "--output", out, "--json", json}) == 0);
  const Integers taken = problem::read_npy_integer_array(out + "/taken.npy");
  const Integers count = problem::read_npy_integer_array(out + "/missed_count.npy");
  const Integers missed = problem::read_npy_integer_array(out + "/missed.npy");
  CHECK(taken.shape == std::vector<std::int64_t>{20});
  CHECK(missed.shape == std::vector<std::int64_t>{count.values[0]});
  for (int row = 0; row < shape.rows; ++row) {
    CHECK(taken.values[row] == std::count(inputs.ids.values.begin(), inputs.ids.values.end(), row));
    CHECK((std::count(missed.values.begin(), missed.values.end(), row) == 1) == (taken.values[row] == 0));
  }
  CHECK(problem::read_npy(out + "/y.npy").tensor.shape == std::vector<std::int64_t>{9, 7});

  const auto arrays = nlohmann::json::parse(std::ifstream(json)).at("results").at(0).at("arrays");
  std::string types;
  for (const auto& array : arrays) types += array.at("type").get<std::string>() + " ";
  CHECK(types == "bf16 int8 int32 fp32 int32 int32 int32 bf16 ");
  CHECK(arrays.at(6).at("count") == "missed_count");
  CHECK(arrays.at(1).at("bytes") == 7);

  CHECK(command(variant(compute), {"--ids", "1000", "--output", out, "--json", json}) == 0);  // no row is missed
  const auto header_of = [&](const std::string& name) {
    std::string header(96, ' ');
    std::ifstream(out + "/" + name + ".npy", std::ios::binary).ignore(10).read(header.data(), std::ssize(header));
    return header;
  };
  CHECK(header_of("missed").starts_with("{'descr': '<i4', 'fortran_order': False, 'shape': (0,), }"));
  CHECK(header_of("rest").starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 7), }"));

  CHECK(command(broken([](const GatherLaunch& l) { ++l.taken[0]; }), {}) == 1);
  CHECK(command(variant(compute), {"--input", in, "--ids", "10"}) == 2);
  problem::write_npy(in + "/ids.npy", Integers({2}, shape.rows), Element::int32());
  CHECK(command(variant(compute), {"--input", in}) == 2);  // there is no such row
  problem::write_npy(in + "/factors.npy", inputs.factors, Element::int32());
  CHECK(command(variant(compute), {"--input", in}) == 2);  // factors are int8
}
