#include "common/run/harness/execute.h"

#include <algorithm>
#include <chrono>

namespace run {
namespace {

bool same_bits(const std::vector<NamedTensor>& run, const std::vector<NamedTensor>& again) {
  return std::equal(run.begin(), run.end(), again.begin(), again.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return !check::first_difference(a.tensor.values, b.tensor.values);
  });
}

}  // namespace

const problem::Tensor& Outcome::output(const std::string& name) const {
  for (const NamedTensor& output : outputs) {
    if (output.name == name) return output.tensor;
  }
  throw std::out_of_range("there is no output '" + name + "'");
}

Outcome run_program(const Program& program, const Judge& judge, const ExecuteOptions& options) {
  DeviceArrays arrays(program.arrays, program.given());
  const std::function<void()> launch = program.bind(arrays);
  runtime::take_findings();  // those of earlier work
  const auto run = [&] {
    arrays.prepare();
    const auto start = std::chrono::steady_clock::now();
    launch();
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
    verdict.guards_intact = arrays.surroundings_intact();
    if (program.deterministic && outcome.findings.empty()) {  // a second run would only find the same
      run();
      verdict.repeatable = same_bits(outcome.outputs, arrays.download());
      outcome.findings = runtime::take_findings();
    }
  }
  if (options.repetitions > 0) outcome.times = measure(launch, options.repetitions);
  return outcome;
}

}  // namespace run
