// ceilings [--json FILE]: measures what this GPU can do at most. The simulator has no time: it shows what an H200 measured.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "benchmarks/ceilings/ceilings.h"
#include "common/run/cli/options.h"
#include "common/run/harness/text.h"
#include "common/runtime/runtime.h"

namespace {

using Json = nlohmann::ordered_json;

// The best of a few launches, with pauses in between: a short burst, before the power limit lowers the clock.
double burst_seconds(const ceilings::Ceiling& ceiling) {
  runtime::Timer timer;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) {
    timer.start();
    ceiling.launch();
    timer.stop();
    best = std::min(best, timer.milliseconds() * 1e-3);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return best;
}

// The SM clock of the first GPU right now; nothing where nvidia-smi cannot say.
std::optional<int> sm_clock_mhz() {
  const char* query = "nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(::popen(query, "r"), ::pclose);
  int mhz = 0;
  if (answer && std::fscanf(answer.get(), "%d", &mhz) == 1) return mhz;
  return std::nullopt;
}

struct Sustained {
  double seconds;  // a launch
  std::optional<int> clock_mhz;
};

// Launches without a pause: half a second to get hot, then two seconds that count. The clock is asked for meanwhile, and the
// answer counts if the launches went on after it.
Sustained sustained(const ceilings::Ceiling& ceiling, double seconds) {
  const int warm_up = static_cast<int>(0.5 / seconds) + 1, launches = static_cast<int>(2 / seconds) + 1;
  runtime::Timer timer;
  for (int i = 0; i < warm_up; ++i) ceiling.launch();
  timer.start();
  for (int i = 0; i < launches; ++i) ceiling.launch();
  timer.stop();
  const std::optional<int> clock = sm_clock_mhz();
  const auto answered = std::chrono::steady_clock::now();
  const double total = timer.milliseconds() * 1e-3;
  const bool went_on = std::chrono::steady_clock::now() - answered > std::chrono::milliseconds(10);
  return {total / launches, went_on ? clock : std::nullopt};
}

// One entry for each ceiling: rates, the clock of the sustained one, and what was measured.
Json measured() {
  const ceilings::Ceilings all(1.0, runtime::properties().multiprocessors);
  Json entries = Json::object();
  for (const ceilings::Ceiling& ceiling : all.all()) {
    const double burst = burst_seconds(ceiling);
    const Sustained hot = sustained(ceiling, burst);
    if (!ceiling.did(ceiling.amount)) throw runtime::Error(ceiling.name + ": the kernel did not do its work");
    Json& entry = entries[ceiling.name];
    entry = {{"value", ceiling.amount / burst}, {"sustained", ceiling.amount / hot.seconds}};
    if (hot.clock_mhz) entry["sm_clock_mhz"] = *hot.clock_mhz;
    entry["what"] = ceiling.what;
  }
  return entries;
}

Json committed() {
  std::ifstream file(FLASHSTEPS_MACHINE);
  if (!file) throw run::InputError(std::string(FLASHSTEPS_MACHINE) + ": cannot be read");
  return Json::parse(file).at("ceilings");
}

void print(const Json& entries, const std::string& device) {
  std::cout << "ceilings: " << device << "\n\n";
  run::Table table({"ceiling", "10^12 a second", "sustained", "SM clock, MHz", "what"});
  for (const auto& [name, entry] : entries.items()) {
    const auto cell = [&](const char* key, double unit, int digits) {
      return entry.contains(key) ? run::fixed(entry.at(key).get<double>() / unit, digits) : "-";
    };
    table.add({name, cell("value", 1e12, 2), cell("sustained", 1e12, 2), cell("sm_clock_mhz", 1, 0), entry.at("what")});
  }
  table.print(std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What can this machine do at most?", "ceilings");
  std::optional<std::filesystem::path> json;
  app.add_option("--json", json, "write the figures to FILE")->type_name("FILE");
  return run::run_command_line(app, argc, argv, [&] {
    const Json entries = run::simulated ? committed() : measured();
    const std::string device =
        run::simulated ? "measured on an NVIDIA H200 (the simulator has no time)" : runtime::properties().name;
    print(entries, device);
    if (json) {
      std::ofstream file(*json);
      file << Json{{"device", device}, {"ceilings", entries}}.dump(1) << '\n';
      if (!file.flush()) throw run::InputError(json->string() + ": cannot be written");
    }
    return static_cast<int>(run::exit_good);
  });
}
