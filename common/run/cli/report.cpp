#include "common/run/cli/report.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/harness/text.h"
#include "common/run/harness/trace.h"

namespace run {
namespace {

using Json = nlohmann::ordered_json;  // writes NaN and infinity as null

// ---- JSON ----

Json device_json() {
  const runtime::Properties& p = runtime::properties();
  return {{"name", p.name},
          {"compute_capability", p.compute_capability},
          {"multiprocessors", p.multiprocessors},
          {"shared_bytes_per_block", p.shared_bytes_per_block},
          {"memory_bytes", p.memory_bytes},
          {"l2_bytes", p.l2_bytes},
          {"sm_clock_mhz", p.sm_clock_mhz},
          {"driver", p.driver},
          {"toolkit", p.toolkit}};
}

Json sim_json(const runtime::SimOptions& sim) {
  if (!simulated) return nullptr;
  const char* modes[] = {"late", "eager", "random"};
  Json json = {{"seed", sim.seed}, {"async", modes[static_cast<int>(sim.async_mode)]}, {"workers", sim.workers}};
  if (sim.device != runtime::SimDevice::h100) json["device"] = "rtx3090";
  return json;
}

Json tensor_json(const check::TensorVerdict& t) {
  return {{"name", t.name},
          {"pass", t.pass},
          {"reason", t.pass ? Json() : Json(t.reason)},
          {"max_error", t.max_error},
          {"max_baseline_error", t.max_baseline_error},
          {"worst_ratio", t.worst_ratio},
          {"worst_row", t.worst_row < 0 ? Json() : Json(t.worst_row)},
          {"mean_error", t.mean_error},
          {"mean_allowed", t.mean_allowed},
          {"rows_checked", t.rows_checked},
          {"rows_exempt", t.rows_exempt}};
}

Json verdict_json(const std::optional<check::Verdict>& verdict) {
  if (!verdict) return nullptr;
  Json tensors = Json::array();
  for (const check::TensorVerdict& tensor : verdict->tensors) tensors.push_back(tensor_json(tensor));
  return {{"pass", verdict->pass()},
          {"reason", verdict->pass() ? Json() : Json(verdict->reason())},
          {"tensors", tensors},
          {"guards_intact", verdict->guards_intact},
          {"deterministic", verdict->repeatable ? Json(*verdict->repeatable) : Json()}};
}

Json kernels_json(const std::vector<problem::KernelCost>& kernels) {
  Json all = Json::array();
  for (const problem::KernelCost& k : kernels) {
    all.push_back({{"kernel", k.kernel}, {"flops", k.flops}, {"bytes_read", k.bytes_read}, {"bytes_written", k.bytes_written}});
  }
  return all;
}

Json findings_json(const std::vector<runtime::Finding>& findings) {
  Json all = Json::array();
  for (const runtime::Finding& f : findings) {
    all.push_back({{"kind", f.kind}, {"kernel", f.kernel}, {"where", f.where}, {"text", f.text}, {"count", f.count}});
  }
  return all;
}

Json arrays_json(const Arrays& arrays) {
  Json all = Json::array();
  for (const Array& a : arrays) {
    all.push_back(
        {{"name", a.name}, {"role", name(a.role)}, {"type", a.element.name()}, {"shape", a.shape}, {"bytes", bytes(a)}});
    if (!a.count.empty()) all.back()["count"] = a.count;
  }
  return all;
}

double tflops(const Result& result) { return result.predicted.flops / (result.outcome.times->median * 1e-3) / 1e12; }

Json times_json(const std::optional<Times>& t) {
  if (!t) return {};
  return {{"median", t->median}, {"min", t->min}, {"max", t->max}, {"repetitions", t->repetitions}, {"launches", t->launches}};
}

Json result_json(const Report& report, const Result& result, const CommonOptions& options) {
  const Outcome& outcome = result.outcome;
  Json json = {{"variant", result.variant},
               {"problem", report.problem},
               {"input", report.input},
               {"verdict", verdict_json(outcome.verdict)},
               {"times_ms", times_json(outcome.times)}};
  if (outcome.plan_times) json["plan_times_ms"] = times_json(outcome.plan_times);
  json.update({{"host_seconds", simulated ? Json(outcome.host_seconds) : Json()},
               {"tflops", outcome.times ? Json(tflops(result)) : Json()},
               {"kernels", kernels_json(result.predicted.kernels)},
               {"arrays", arrays_json(result.arrays)},
               {"shared_bytes", result.predicted.shared_bytes},
               {"scratch_bytes", result.predicted.scratch_bytes},
               {"counters", options.counters ? counters_json(outcome.counters, report.estimates) : Json()},
               {"findings", findings_json(outcome.findings)}});
  return json;
}

Json report_json(const Report& report, const CommonOptions& options) {
  Json results = Json::array();
  for (const Result& result : report.results) results.push_back(result_json(report, result, options));
  Json skipped = Json::array();
  for (const Skipped& s : report.skipped) skipped.push_back({{"variant", s.variant}, {"reason", s.reason}});
  return {{"schema", 4},
          {"step", report.step},
          {"backend", runtime::properties().backend},
          {"device", device_json()},
          {"sim", sim_json(options.sim)},
          {"command", options.command},
          {"results", results},
          {"skipped", skipped}};
}

// ---- files ----

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw InputError(folder.string() + ": cannot be created (" + error.message() + ")");
}

void write_outputs(const Report& report, const CommonOptions& options) {
  for (const Result& result : report.results) {
    const std::filesystem::path folder = options.variant == "all" ? *options.output / result.variant : *options.output;
    make_folder(folder);
    for (const NamedTensor& output : result.outcome.outputs) {
      const std::filesystem::path file = folder / (output.name + ".npy");
      if (output.element.is_integer()) {
        problem::write_npy(file, output.integers, output.element);
      } else {
        problem::write_npy(file, output.tensor, output.element.dtype());
      }
    }
  }
}

void write_json(const Report& report, const CommonOptions& options) {
  if (options.json->has_parent_path()) make_folder(options.json->parent_path());
  std::ofstream file(*options.json);
  // A path on the command line may hold bytes that are not UTF-8: they are replaced.
  file << report_json(report, options).dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  if (!file.flush()) throw InputError(options.json->string() + ": cannot be written");
}

// JSON Lines: of each launch a line that says what it is, and one for each event.
void write_trace(const Report& report, const CommonOptions& options) {
  if (options.trace->has_parent_path()) make_folder(options.trace->parent_path());
  std::ofstream file(*options.trace);
  const auto write = [&](const Json& line) { file << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n'; };
  for (const Result& result : report.results) {
    for (const runtime::KernelTrace& launch : result.outcome.traces) {
      Json header = {{"schema", 1},
                     {"step", report.step},
                     {"variant", result.variant},
                     {"problem", report.problem},
                     {"sim", sim_json(options.sim)},
                     {"command", options.command}};
      header.update(launch_json(launch));
      write(header);
      for (const runtime::TraceEvent& event : launch.events) write(event_json(event));
    }
  }
  if (!file.flush()) throw InputError(options.trace->string() + ": cannot be written");
}

// ---- for people ----

std::string device_text() {
  const runtime::Properties& p = runtime::properties();
  std::string text = p.name + " (" + p.backend + " build, " + p.toolkit;
  if (!p.driver.empty()) text += ", driver " + p.driver;
  if (p.multiprocessors > 0) text += ", " + std::to_string(p.multiprocessors) + " multiprocessors";
  return text + ")";
}

std::string verdict_text(const Outcome& outcome) {
  if (!outcome.pass()) return "FAIL";
  return outcome.verdict ? "ok" : "not checked";
}

// The largest error over its allowance, of all tensors.
std::string ratio_text(const Outcome& outcome) {
  if (!outcome.verdict || outcome.verdict->tensors.empty()) return "-";
  const auto& tensors = outcome.verdict->tensors;
  const auto worst = std::max_element(tensors.begin(), tensors.end(),
                                      [](const auto& a, const auto& b) { return a.worst_ratio < b.worst_ratio; });
  return fixed(worst->worst_ratio, 2);
}

std::string rows_text(const Outcome& outcome) {
  return outcome.verdict ? std::to_string(outcome.verdict->tensors.front().rows_checked) : "-";
}

void print_results(const Report& report, bool timed) {
  std::vector<std::string> header = {"variant", "verdict", "error / allowed", "rows checked", "predicted MB"};
  if (simulated) header.push_back("host s");
  if (timed) header.insert(header.end(), {"GPU ms, median", "GPU ms, min", "GPU ms, max", "launches", "TFLOP/s"});
  Table table(header);
  for (const Result& result : report.results) {
    const Outcome& outcome = result.outcome;
    double bytes = 0;
    for (const problem::KernelCost& kernel : result.predicted.kernels) bytes += kernel.bytes_read + kernel.bytes_written;
    std::vector<std::string> row = {result.variant, verdict_text(outcome), ratio_text(outcome), rows_text(outcome),
                                    megabytes(bytes)};
    if (simulated) row.push_back(fixed(outcome.host_seconds, 3));
    if (const auto& t = outcome.times) {
      row.insert(row.end(), {fixed(t->median, 4), fixed(t->min, 4), fixed(t->max, 4), std::to_string(t->launches),
                             fixed(tflops(result), 2)});
    }
    table.add(row);
  }
  table.print(std::cout);
  if (timed) {
    std::cout << "GPU ms: of one launch, from 5 to " << bench_repetitions
              << " samples; a sample is so many launches, back to back\n";
    for (const Result& result : report.results) {
      if (const auto& t = result.outcome.plan_times) {
        std::cout << "plan of " << result.variant << ": " << fixed(t->median, 4)
                  << " ms of that; it may be made once for a mask\n";
      }
    }
  }
  for (const Skipped& skipped : report.skipped) std::cout << skipped.variant << "  skipped: " << skipped.reason << '\n';
}

// Each kernel once: what it costs depends on the problem alone.
void print_kernels(const Report& report) {
  Table table({"kernel, as predicted", "MFLOP", "MB read", "MB written", "least µs on an H200"});
  std::vector<std::string> seen;
  for (const Result& result : report.results) {
    for (const problem::KernelCost& kernel : result.predicted.kernels) {
      if (std::find(seen.begin(), seen.end(), kernel.kernel) != seen.end()) continue;
      seen.push_back(kernel.kernel);
      table.add({kernel.kernel, fixed(kernel.flops / 1e6, 2), megabytes(kernel.bytes_read), megabytes(kernel.bytes_written),
                 fixed(1e6 * problem::h200_floor_seconds(kernel, report.dtype), 2)});
    }
  }
  table.print(std::cout);
}

void print_all_counters(const Report& report) {
  for (const Result& result : report.results) {
    std::cout << "\n" << result.variant << ": counters\n\n";
    print_counters(std::cout, result.outcome.counters, report.estimates);
  }
}

void print_failures(const Report& report) {
  for (const Result& result : report.results) {
    for (const runtime::Finding& finding : result.outcome.findings) {
      std::cerr << report.step << ": " << result.variant << ": " << finding.text << '\n';
    }
    const auto& verdict = result.outcome.verdict;
    if (verdict && !verdict->pass()) std::cerr << report.step << ": " << result.variant << ": " << verdict->reason() << '\n';
  }
}

}  // namespace

int finish(const Report& report, const CommonOptions& options) {
  std::cout << report.step << ": " << report.problem_text << '\n' << "device: " << device_text() << "\n\n";
  print_results(report, options.bench);
  std::cout << '\n';
  print_kernels(report);
  if (options.counters) print_all_counters(report);
  std::cout.flush();
  print_failures(report);
  if (options.output) write_outputs(report, options);
  if (options.json) write_json(report, options);
  if (options.trace) write_trace(report, options);
  const bool good = std::all_of(report.results.begin(), report.results.end(), [](const Result& r) { return r.outcome.pass(); });
  return good ? exit_good : exit_failed;
}

}  // namespace run
