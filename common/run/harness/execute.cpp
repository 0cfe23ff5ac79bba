#include "common/run/harness/execute.h"

#include <algorithm>
#include <cctype>
#include <chrono>

namespace run {
namespace {

bool same_bits(const std::vector<NamedTensor>& run, const std::vector<NamedTensor>& again) {
  return std::equal(run.begin(), run.end(), again.begin(), again.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return a.name == b.name && a.tensor.shape == b.tensor.shape && !check::first_difference(a.tensor.values, b.tensor.values) &&
           a.integers.values == b.integers.values;
  });
}

std::string lower_case(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// A verdict is named like its output, up to capitals: dq is judged as dQ.
void require_all_judged(const std::vector<NamedTensor>& outputs, const std::vector<check::TensorVerdict>& verdicts) {
  for (const NamedTensor& output : outputs) {
    const auto judged = std::count_if(verdicts.begin(), verdicts.end(), [&](const check::TensorVerdict& verdict) {
      return lower_case(verdict.name) == lower_case(output.name);
    });
    if (judged != 1)
      throw std::logic_error("output '" + output.name + "' has " + std::to_string(judged) + " verdicts, not one");
  }
}

}  // namespace

Outcome run_program(const Program& program, const Judge& judge, const ExecuteOptions& options) {
  DeviceArrays arrays(program.arrays, program.given());
  const Launches launches = program.bind(arrays);
  runtime::take_findings();  // those of earlier work
  const auto run = [&] {
    arrays.prepare();
    const auto start = std::chrono::steady_clock::now();
    launches();
    runtime::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };

  Outcome outcome;
  if (options.counters) {
    runtime::take_counters();
    runtime::set_counting(true);
  }
  if (options.trace) {
    runtime::take_traces();
    runtime::set_tracing(true);
  }
  outcome.host_seconds = run();
  if (options.counters) {
    runtime::set_counting(false);
    outcome.counters = runtime::take_counters();
  }
  if (options.trace) {
    runtime::set_tracing(false);
    outcome.traces = runtime::take_traces();
  }
  outcome.outputs = arrays.download();
  outcome.findings = runtime::take_findings();
  if (options.check) {
    check::Verdict& verdict = outcome.verdict.emplace();
    verdict.tensors = judge(outcome.outputs);
    require_all_judged(outcome.outputs, verdict.tensors);
    verdict.guards_intact = arrays.surroundings_intact();
    if (program.deterministic && outcome.findings.empty()) {  // a second run would only find the same
      runtime::in_another_order(run);
      verdict.repeatable = same_bits(outcome.outputs, arrays.download());
      verdict.guards_intact &= arrays.surroundings_intact();
      outcome.findings = runtime::take_findings();
    }
  }
  if (options.repetitions > 0) {
    outcome.times = measure(launches, options.repetitions);
    if (launches.plan) outcome.plan_times = measure(launches.plan, options.repetitions);
  }
  return outcome;
}

}  // namespace run
