// Runs the calibration kernels: for Nsight Compute in the gpu build; in the sim build, writes the simulator's counters of each.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/cli/options.h"
#include "common/run/harness/counters.h"
#include "tests/programs/calibration_kernels.h"

int main(int argc, char** argv) {
  if (run::simulated && argc != 2) {
    std::cerr << "usage: " << argv[0] << " FILE   (for the counters, as JSON)\n";
    return run::exit_usage;
  }
  if (run::simulated) runtime::set_counting(true);
  calibration::run_all();
  for (const runtime::Finding& finding : runtime::take_findings()) {
    std::cerr << finding.text << '\n';
    return run::exit_failed;
  }
  if (run::simulated) {
    std::ofstream file(argv[1]);
    file << run::counters_json(runtime::take_counters(), {}).dump(1) << '\n';
    if (!file.flush()) {
      std::cerr << argv[1] << " cannot be written\n";
      return run::exit_unavailable;
    }
  }
  return run::exit_good;
}
