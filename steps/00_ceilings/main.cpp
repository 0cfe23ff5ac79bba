// 00_ceilings [--json FILE]: measures what this GPU can do at most. The simulator has no time: it shows what an H200 measured.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/device/runtime.h"
#include "common/run/options.h"
#include "common/run/text.h"
#include "steps/00_ceilings/ceilings.h"

namespace {

using Json = nlohmann::ordered_json;

// The best of a few launches, with pauses in between: a short burst, before the power limit lowers the clock.
double best_seconds(const ceilings::Ceiling& ceiling) {
  device::Timer timer;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) {
    timer.start();
    ceiling.launch();
    best = std::min(best, timer.stop() * 1e-3);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return best;
}

// One entry for each ceiling: value and meaning.
Json measured() {
  const ceilings::Ceilings all(1.0, device::properties().multiprocessors);
  Json entries = Json::object();
  for (const ceilings::Ceiling& ceiling : all.all()) {
    const double seconds = best_seconds(ceiling);
    if (!ceiling.plausible()) throw device::Error(ceiling.name + ": the kernel did not do its work");
    entries[ceiling.name] = {{"value", ceiling.amount / seconds}, {"what", ceiling.what}};
  }
  return entries;
}

Json committed() {
  std::ifstream file(FLASHSTEPS_MACHINE);
  if (!file) throw run::InputError(std::string(FLASHSTEPS_MACHINE) + ": cannot be read");
  return Json::parse(file).at("ceilings");
}

void print(const Json& entries, const std::string& device) {
  std::cout << "00_ceilings: " << device << "\n\n";
  run::Table table({"ceiling", "10^12 a second", "what"});
  for (const auto& [name, entry] : entries.items()) {
    table.add({name, run::fixed(entry.at("value").get<double>() / 1e12, 2), entry.at("what").get<std::string>()});
  }
  table.print(std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What can this machine do at most?", "00_ceilings");
  std::optional<std::filesystem::path> json;
  app.add_option("--json", json, "write the figures to FILE")->type_name("FILE");
  return run::run_command_line(app, argc, argv, [&] {
    const Json entries = run::simulated ? committed() : measured();
    const std::string device =
        run::simulated ? "measured on an NVIDIA H200 (the simulator has no time)" : device::properties().name;
    print(entries, device);
    if (json) {
      std::ofstream file(*json);
      file << Json{{"device", device}, {"ceilings", entries}}.dump(1) << '\n';
      if (!file.flush()) throw run::InputError(json->string() + ": cannot be written");
    }
    return static_cast<int>(run::exit_good);
  });
}
