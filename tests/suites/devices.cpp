// What of a step runs on which device, and which variant is chosen there: tests/steps/NN_name/devices.txt says it, for the
// devices below. Part of the test of every step. Needs none of the devices.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "common/run/cli/command.h"
#include "common/run/family/any_step.h"
#include "tests/catch.h"

namespace {

using problem::Dtype;

struct Device {
  const char* name;
  int compute_capability;
  std::size_t shared_kib;  // the most that a block may ask for: CUDA C++ Programming Guide 13.0, compute capabilities
};
const Device devices[] = {{"8.0", 80, 163}, {"8.6", 86, 99},    {"8.9", 89, 99},
                          {"9.0", 90, 227}, {"10.0", 100, 227}, {"12.0", 120, 99}};

runtime::Properties properties_of(const Device& device) {
  runtime::Properties p;
  p.backend = "gpu";
  p.name = "it";
  p.compute_capability = device.compute_capability;
  p.shared_bytes_per_block = 1024 * device.shared_kib;
  return p;
}

// The problems of a step that are asked about: what a choice depends on.
template <class Shape>
std::map<std::string, Shape> attention_problems(Shape shape) {
  std::map<std::string, Shape> problems;
  for (const Dtype dtype : {Dtype::fp16, Dtype::fp32}) {
    for (const int dim : {32, 64, 96, 128, 160, 256}) {
      for (const int dropout : {0, 32}) {
        shape.dtype = dtype;
        shape.dim = dim;
        shape.dropout = dropout;
        shape.scale.reset();
        problems["dim " + std::string(dim < 100 ? " " : "") + std::to_string(dim) + " " + std::string(problem::name(dtype)) +
                 (dropout > 0 ? " dropout" : "")] = problem::resolve(shape);
      }
    }
  }
  return problems;
}
std::map<std::string, problem::Attention> problems_of(const run::AttentionStep& step) {
  return attention_problems(step.default_shape);
}
std::map<std::string, problem::Backward> problems_of(const run::BackwardStep& step) {
  return attention_problems(step.default_shape);
}
std::map<std::string, problem::Gemm> problems_of(const run::GemmStep& step) {
  problem::Gemm ragged = step.default_shape;
  ragged.m = ragged.n = 300;
  return {{"its default shape", problem::resolve(step.default_shape)}, {"with edges", problem::resolve(ragged)}};
}
template <class Step>  // of any other family
std::map<std::string, typename Step::Problem> problems_of(const Step& step) {
  return {{"its default shape", resolve(step.default_shape)}};
}
std::map<std::string, problem::Softmax> problems_of(const run::SoftmaxStep& step) {
  problem::Softmax wide = step.default_shape;
  wide.cols = 100000;
  return {{"its default shape", problem::resolve(step.default_shape)}, {"long rows", problem::resolve(wide)}};
}

using Groups = std::vector<std::pair<std::string, std::string>>;  // names, and what all of them have

void add(Groups& groups, const std::string& name, const std::string& what) {
  const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.second == what; });
  if (known == groups.end()) {
    groups.emplace_back(name, what);
  } else {
    known->first += ", " + name;
  }
}

// What runs where no variant is named, and below it what the device refuses, by reason.
template <class Step, class Shape>
std::string answer(const Step& step, const Shape& shape, const runtime::Properties& device) {
  using Variant = typename decltype(step.variants)::value_type;
  const auto is_taken = [&](const Variant& v) { return !refusal(v.supports, shape); };
  const auto serves = [&](const Variant& v) { return is_taken(v) && !run::device_refusal(device, v, shape); };
  const auto chosen = [&](const std::string& name) {
    run::CommonOptions options;
    options.variant = name;
    return run::chosen_variants(step, options, shape, device).chosen;
  };
  using Chosen = std::vector<const Variant*>;
  Groups refused;  // variants, and why
  for (const Variant& variant : step.variants) {
    if (!is_taken(variant)) continue;
    const auto reason = run::device_refusal(device, variant, shape);
    if (!reason) {
      CHECK(chosen(variant.name) == Chosen{&variant});
      continue;
    }
    CHECK_THROWS_WITH(chosen(variant.name), variant.name + " " + *reason);
    add(refused, variant.name, *reason);
  }
  const Variant* best = run::best_variant(step, serves);
  // The command line takes the same one, if the default variant takes the problem.
  const Variant& preferred = run::variant_named(step, step.default_variant);
  if (is_taken(preferred) && best != nullptr) CHECK(chosen("") == Chosen{best});
  if (is_taken(preferred) && best == nullptr) {
    CHECK_THROWS_WITH(chosen(""), preferred.name + " " + *run::device_refusal(device, preferred, shape));
  }
  std::string text = (best != nullptr ? best->name : "none") + "\n";
  for (const auto& [variants, reason] : refused) text += "      " + variants + ": " + reason + "\n";
  return text;
}

template <class Step>
std::string table(const Step& step) {
  Groups problems;
  for (const auto& [name, shape] : problems_of(step)) {
    const bool is_taken = std::any_of(step.variants.begin(), step.variants.end(),
                                      [&, &s = shape](const auto& variant) { return !refusal(variant.supports, s); });
    if (!is_taken) continue;
    Groups answers;
    for (const Device& device : devices) {
      INFO(name << ", " << device.name);
      add(answers, device.name, answer(step, shape, properties_of(device)));
    }
    std::string text;
    for (const auto& [names, one] : answers) text += "  " + names + ": " + one;
    add(problems, name, text);
  }
  std::string text;
  for (const auto& [names, one] : problems) text += names + "\n" + one;
  return text;
}

std::string tables(const run::AttentionStep& step) {
  return table(step) + (step.backward ? "\nthe backward pass\n\n" + table(*step.backward) : "");
}
template <class Step>
std::string tables(const Step& step) {
  return table(step);
}

}  // namespace

TEST_CASE("what runs on which device, what is chosen there, and what is refused in which words") {
  std::visit(
      [](const auto* step) {
        const std::filesystem::path file = "tests/steps/" + step->name + "/devices.txt";
        std::stringstream text;
        text << std::ifstream(file).rdbuf();
        const std::string actual = tables(*step);
        const bool as_written = text.str() == actual;
        if (!as_written) std::cout << actual;  // Catch2 would break its lines
        INFO(file << " does not say what stands above");
        CHECK(as_written);
      },
      run::this_step());
}
