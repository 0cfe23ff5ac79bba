// Contenders that take turns, round by round, so that a clock that drifts meets all of them alike. Two kinds of time:
//
//   burst       a few launches, after a pause and one launch that wakes the machine up: the clock is not yet down
//   sustained   launches without a pause, for a while: the power limit decides the clock
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/run/cli/options.h"
#include "common/run/harness/rows_buffer.h"
#include "common/run/harness/text.h"
#include "common/runtime/runtime.h"

namespace benchmarks {

using Json = nlohmann::ordered_json;

struct TurnOptions {
  int rounds = 21;
  int launches = 1;  // of a burst
  int pause_ms = 5;
  int sustained_ms = 300;
  std::optional<std::filesystem::path> json = {};
};

inline void add_turn_options(CLI::App& app, TurnOptions& options) {
  app.add_option("--rounds", options.rounds, "in each, everyone has one turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json, "write the figures to FILE")->type_name("FILE");
}

struct Contender {
  std::string name;
  double work = 0;  // of a launch, in the unit of the report
  std::function<void()> launch;
  std::string verdict = {};           // empty where there is nothing to check
  std::vector<double> burst_ms = {};  // a launch, in each round
  double sustained_ms = 0;            // a launch
};

// Milliseconds a launch.
inline double timed(const Contender& contender, int launches) {
  runtime::Timer timer;
  timer.start();
  for (int i = 0; i < launches; ++i) contender.launch();
  timer.stop();
  return timer.milliseconds() / launches;
}

inline double in_a_burst(const Contender& contender, const TurnOptions& options) {
  std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
  contender.launch();
  return timed(contender, options.launches);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

inline Json spread(const std::vector<double>& values) {
  return {{"median", median(values)},
          {"min", *std::min_element(values.begin(), values.end())},
          {"max", *std::max_element(values.begin(), values.end())}};
}

// Speed over another one's, in each round.
inline std::vector<double> ratios(const Contender& contender, const Contender& other) {
  std::vector<double> result;
  for (std::size_t r = 0; r < contender.burst_ms.size(); ++r) {
    result.push_back(contender.work / contender.burst_ms[r] / (other.work / other.burst_ms[r]));
  }
  return result;
}

inline void measure(std::vector<Contender>& contenders, const TurnOptions& options) {
  for (Contender& contender : contenders) in_a_burst(contender, options);
  for (int round = 0; round < options.rounds; ++round) {
    for (Contender& contender : contenders) contender.burst_ms.push_back(in_a_burst(contender, options));
  }
  for (Contender& contender : contenders) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.sustained_ms));
    // Over the second half of the time: the first half is for the clock to come down.
    const int half = std::max(1, static_cast<int>(options.sustained_ms / 2 / median(contender.burst_ms)));
    timed(contender, half);
    contender.sustained_ms = timed(contender, half);
  }
}

// Each but the first launches once into `output`, and is judged by the truth. Whether all are right.
template <class Truth>
bool judge(std::vector<Contender>& contenders, run::RowsBuffer& output, const Truth& truth) {
  bool right = true;
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    output.poison();
    contenders[i].launch();
    runtime::synchronize();
    const bool pass = truth.judge(output.download()).pass;
    contenders[i].verdict = pass ? "ok" : "WRONG";
    right = right && pass && output.surroundings_intact();
  }
  return right;
}

// What a report calls things.
struct Names {
  std::string problem;              // for people
  Json shape;                       // for programs
  std::string work, rate;           // of the contenders: "operations" and "TFLOP/s", or "bytes" and "TB/s": 10¹² a second
  std::vector<std::string> others;  // whose speed is shown as a share: the first contender, the second, …
};

// A table on standard output, and the JSON that the options ask for. Throws run::InputError if that cannot be written.
inline void report(const std::vector<Contender>& contenders, const TurnOptions& options, const Names& names) {
  std::cout << names.problem << ", " << runtime::properties().name << ", " << options.rounds << " rounds\n\n";
  std::vector<std::string> header = {"", "verdict", "burst µs", names.rate};
  for (const std::string& other : names.others) header.insert(header.end(), {"of " + other, "min", "max"});
  header.push_back("sustained " + names.rate);
  run::Table table(header);
  Json entries = Json::array();
  for (const Contender& contender : contenders) {
    const double ms = median(contender.burst_ms);
    std::vector<std::string> row = {contender.name, contender.verdict, run::fixed(ms * 1e3, 1),
                                    run::fixed(contender.work / ms * 1e-9, 2)};
    Json entry = {{"name", contender.name},
                  {"verdict", contender.verdict},
                  {names.work, contender.work},
                  {"burst_ms", spread(contender.burst_ms)}};
    for (std::size_t i = 0; i < names.others.size(); ++i) {
      const Json share = spread(ratios(contender, contenders[i]));
      for (const char* key : {"median", "min", "max"}) row.push_back(run::fixed(share[key].get<double>(), 3));
      entry["of_" + names.others[i]] = share;
    }
    row.push_back(run::fixed(contender.work / contender.sustained_ms * 1e-9, 2));
    entry["sustained_ms"] = contender.sustained_ms;
    table.add(row);
    entries.push_back(entry);
  }
  table.print(std::cout);
  if (!options.json) return;
  std::ofstream file(*options.json);
  file << Json{{"device", runtime::properties().name},
               {"problem", names.shape},
               {"rounds", options.rounds},
               {"launches", options.launches},
               {"pause_ms", options.pause_ms},
               {"sustained_ms", options.sustained_ms},
               {"contenders", entries}}
              .dump(1)
       << '\n';
  if (!file.flush()) throw run::InputError(options.json->string() + ": cannot be written");
}

}  // namespace benchmarks
