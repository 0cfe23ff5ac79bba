// softmax_peers [--rows --cols --dtype --variant …]: step 03 beside a copy of the same bytes, in one run.
//
// All take turns (turns.h), in bursts of 20 launches. The copy is the kernel of benchmarks/ceilings, of x into y: what a launch
// costs beyond its bytes, it pays, too, once. Every softmax is checked, as in the steps: row by row, against float64.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "benchmarks/ceilings/memory.cuh"
#include "benchmarks/turns.h"
#include "common/problem/softmax.h"
#include "common/run/family/any_step.h"
#include "common/run/family/softmax_request.h"
#include "common/run/family/softmax_truth.h"
#include "common/run/harness/rows_buffer.h"
#include "common/run/harness/text.h"
#include "common/runtime/launch.h"

namespace {

using benchmarks::Contender;
using problem::Softmax;

struct Options {
  std::vector<std::string> variants = {"tuned"};
  benchmarks::TurnOptions turns{.launches = 20};
};

std::vector<const run::SoftmaxVariant*> chosen(const run::SoftmaxStep& step, const Options& options) {
  std::vector<const run::SoftmaxVariant*> result;
  for (const std::string& name : options.variants) {
    const auto at = std::find_if(step.variants.begin(), step.variants.end(), [&](const auto& v) { return v.name == name; });
    if (at == step.variants.end()) throw run::InputError("--variant: " + step.name + " has no variant '" + name + "'");
    result.push_back(&*at);
  }
  return result;
}

int compare(const run::SoftmaxStep& step, const Softmax& s, const Options& options) {
  const problem::Tensor inputs = problem::make_inputs(s, run::default_seed);
  const run::SoftmaxTruth truth(s, inputs);
  run::RowsBuffer x("x", {s.rows, s.cols}, {s.ldx}, s.dtype), y("y", {s.rows, s.cols}, {s.ldy}, s.dtype);
  x.upload(inputs);

  const std::int64_t chunks = std::int64_t{s.rows} * s.cols * static_cast<int>(problem::bytes(s.dtype)) / 16;
  const double bytes = 32.0 * static_cast<double>(chunks);
  std::vector<std::unique_ptr<run::DeviceArrays>> scratches;
  std::vector<Contender> contenders;
  contenders.push_back({"copy", bytes, [&] {
                          runtime::launch(ceilings::copy, {.grid = static_cast<unsigned>((chunks + 511) / 512), .block = 512},
                                          chunks, static_cast<const uint4*>(x.data()), static_cast<uint4*>(y.data()));
                        }});
  for (const run::SoftmaxVariant* variant : chosen(step, options)) {
    const auto& scratch = *scratches.emplace_back(std::make_unique<run::DeviceArrays>(variant->scratch_of(s)));
    const run::SoftmaxLaunch launch{s, x.data(), y.data(), scratch};
    contenders.push_back({variant->name, bytes, [variant, launch] { variant->launch(launch); }});
  }
  const bool right = benchmarks::judge(contenders, y, truth);
  benchmarks::measure(contenders, options.turns);
  benchmarks::report(contenders, options.turns,
                     {problem::to_string(s),
                      {{"rows", s.rows}, {"cols", s.cols}, {"dtype", problem::name(s.dtype)}},
                      "bytes",
                      "TB/s",
                      {"copy"}});
  return right ? run::exit_good : run::exit_failed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Step 03 beside a copy of the same bytes", "softmax_peers");
  std::optional<int> rows, cols;
  std::optional<problem::Dtype> dtype;
  Options options;
  run::add_whole_number(app, "--rows", rows, 1, "of x and y (default 16384)");
  run::add_whole_number(app, "--cols", cols, 1, "of x and y (default 4096)");
  run::add_dtype(app, dtype);
  app.add_option("--variant", options.variants, "of step 03; may be repeated")->capture_default_str();
  benchmarks::add_turn_options(app, options.turns);
  return run::run_command_line(app, argc, argv, [&] {
    Softmax s;
    s.rows = rows.value_or(16384);
    s.cols = cols.value_or(4096);
    s.dtype = dtype.value_or(problem::Dtype::fp16);
    if (s.dtype == problem::Dtype::bf16) throw run::InputError("--dtype: fp16 or fp32");
    if (s.cols % 8 != 0) throw run::InputError("--cols: a multiple of 8, so that the copy has whole chunks of 16 bytes");
    return compare(run::this_step_as<run::SoftmaxStep>(), problem::resolve(s), options);
  });
}
