// Runs a program and judges what comes out: what the command line does, and what the tests of every step call.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/check/verdict.h"
#include "common/run/harness/arrays.h"
#include "common/run/harness/measure.h"
#include "common/run/harness/step.h"
#include "common/runtime/runtime.h"

namespace run {

struct ExecuteOptions {
  bool check = true;      // judge the outputs, and run a second time, under another seed, to compare bits
  bool counters = false;  // count what the simulator can count, in the first run
  bool trace = false;     // trace a warp of each kernel in that run
  int repetitions = 0;    // timed samples after a warm-up; 0: none. Only on a GPU
  Layout layout = {};     // of Q, K, V and O; a layer has its own, a matrix product only gaps
};

struct Outcome {
  std::vector<NamedTensor> outputs;
  std::optional<check::Verdict> verdict;          // nothing where no check was asked for
  std::vector<runtime::Finding> findings;         // of the simulator
  std::vector<runtime::KernelCounters> counters;  // of the first run, where the simulator was told to count
  std::vector<runtime::KernelTrace> traces;       // and to trace
  std::optional<Times> times;                     // of a launch, and its plan
  std::optional<Times> plan_times;                // of the plan alone, where the variant has one
  double host_seconds = 0;                        // the first launch and the wait for its end, by the host's clock

  bool pass() const { return findings.empty() && (!verdict || verdict->pass()); }
  const problem::Tensor& output(std::string_view name) const { return tensor_of(outputs, name); }
};

// What puts a variant's kernels to work on arrays of the device.
struct Launches {
  std::function<void()> plan;  // once for a mask; none: there is nothing to plan
  std::function<void()> launch;

  void operator()() const {  // both
    if (plan) plan();
    launch();
  }
};

// A variant with a problem: its arrays, and how it is launched once they are on the device.
struct Program {
  Arrays arrays;
  std::function<std::vector<Given>()> given;  // the inputs
  std::function<Launches(const DeviceArrays&)> bind;
  bool deterministic = true;
};

// What the outputs are worth: one verdict each, by the output's name, and more where inputs are judged, too.
using Judge = std::function<std::vector<check::TensorVerdict>(const std::vector<NamedTensor>&)>;

// Throws what DeviceArrays and the launch throw; std::logic_error for an output without a verdict.
Outcome run_program(const Program& program, const Judge& judge, const ExecuteOptions& options);

// Throws std::invalid_argument for a request that the variant does not support: a shape, or where a launch's rows lie.
template <class Family, class Request>
void require_supported(const Variant<Family>& variant, const Request& request) {
  if (const auto reason = refusal(variant.supports, request)) throw std::invalid_argument(variant.name + " " + *reason);
}

// The shape is resolved. The program refers to the variant.
template <class Family>
Program program_of(const Variant<Family>& variant, const typename Family::Problem& shape,
                   std::function<std::vector<Given>()> given, Layout layout = {}) {
  const auto bind = [&variant, shape](const DeviceArrays& arrays) {
    const typename Family::Launch launch = Family::bind(shape, arrays);
    if constexpr (requires { refusal(variant.supports, launch); }) require_supported(variant, launch);
    Launches launches{.plan = nullptr, .launch = [&variant, launch] { variant.launch(launch); }};
    if (variant.plan) launches.plan = [&variant, launch] { variant.plan(launch); };
    return launches;
  };
  return {Family::arrays(shape, layout) + variant.scratch_of(shape), std::move(given), bind, variant.deterministic};
}

// One variant on one problem. The inputs are rounded to the shape's dtype. `truth` is computed here where it is not given.
// Throws std::invalid_argument for inputs of another shape, and as require_supported(); runtime::OutOfMemory, runtime::Error.
template <class Family>
Outcome execute(const Variant<Family>& variant, const typename Family::Problem& requested,
                const typename Family::Inputs& inputs, const ExecuteOptions& options = {},
                const typename Family::Truth* truth = nullptr) {
  const typename Family::Problem shape = resolve(requested);
  require_supported(variant, shape);
  const Judge judge = [&](const std::vector<NamedTensor>& outputs) {
    return truth ? Family::judge(*truth, outputs) : Family::judge(typename Family::Truth(shape, inputs), outputs);
  };
  const auto given = [&] { return Family::given(shape, inputs); };
  return run_program(program_of(variant, shape, given, options.layout), judge, options);
}

}  // namespace run
