// Contenders that take turns, round by round, so that a clock that drifts meets all of them alike. Two kinds of time:
//
//   burst       a few launches, after a pause and one launch that wakes the machine up: the clock is not yet down
//   sustained   launches without a pause, for a while: the power limit decides the clock
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/device/runtime.h"

namespace benchmarks {

using Json = nlohmann::ordered_json;

struct TurnOptions {
  int rounds = 21;
  int launches = 1;  // of a burst
  int pause_ms = 5;
  int sustained_ms = 300;
};

inline void add_turn_options(CLI::App& app, TurnOptions& options) {
  app.add_option("--rounds", options.rounds, "in each, everyone has one turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

struct Contender {
  std::string name;
  double work = 0;  // of a launch: operations, or bytes
  std::function<void()> launch;
  std::string verdict = {};           // empty where there is nothing to check
  std::vector<double> burst_ms = {};  // a launch, in each round
  double sustained_ms = 0;            // a launch
};

// Milliseconds a launch.
inline double timed(const Contender& contender, int launches) {
  device::Timer timer;
  timer.start();
  for (int i = 0; i < launches; ++i) contender.launch();
  return timer.stop() / launches;
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

}  // namespace benchmarks
