// How samples are chosen, what becomes of them, and where the times stand. On a GPU test_measure_gpu.cpp measures.
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/run/cli/report.h"
#include "common/run/harness/measure.h"
#include "tests/catch.h"

TEST_CASE("A sample holds as many launches as take a millisecond, and at least one") {
  CHECK(run::launches_in_a_sample(0.01) == 100);
  CHECK(run::launches_in_a_sample(0.3) == 4);
  CHECK(run::launches_in_a_sample(0.999) == 2);
  CHECK(run::launches_in_a_sample(1) == 1);
  CHECK(run::launches_in_a_sample(157) == 1);
  CHECK(run::launches_in_a_sample(std::numeric_limits<double>::max()) == 1);
}

TEST_CASE("A sample of launches that take next to no time is a graph of 200") {
  CHECK(run::launches_in_a_sample(0.005) == 200);
  CHECK(run::launches_in_a_sample(0.001) == 200);
  CHECK(run::launches_in_a_sample(std::numeric_limits<double>::denorm_min()) == 200);
  CHECK(run::launches_in_a_sample(0) == 200);
}

TEST_CASE("Slow launches are timed less often, but five times") {
  CHECK(run::samples_in_time(1, 50) == 50);
  CHECK(run::samples_in_time(0, 50) == 50);
  CHECK(run::samples_in_time(10, 50) == 50);
  CHECK(run::samples_in_time(20, 50) == 25);
  CHECK(run::samples_in_time(100, 50) == 5);
  CHECK(run::samples_in_time(1e9, 50) == 5);
  CHECK(run::samples_in_time(100, 3) == 3);
}

TEST_CASE("Times are of one launch, whatever a sample holds") {
  const run::Times odd = run::times_of({8, 2, 4}, 4);
  CHECK(odd.median == 1);
  CHECK(odd.min == 0.5);
  CHECK(odd.max == 2);
  CHECK(odd.repetitions == 3);
  CHECK(odd.launches == 4);
  CHECK(run::times_of({1, 4, 2, 8}, 1).median == 3);
  CHECK(run::times_of({5}, 1).median == 5);
}

TEST_CASE("A report says how often a sample launched, and its table keeps times of the GPU and of the host apart") {
  const nlohmann::ordered_json problem, input;
  run::Report report{"09_some", "a problem", problem, input, problem::Dtype::fp32, {}, {}, {}};
  report.results.emplace_back();
  run::Outcome& outcome = report.results[0].outcome;
  outcome.times = run::times_of({0.5, 0.5, 1}, 20);
  outcome.host_seconds = 7.125;
  run::CommonOptions options;
  options.bench = true;
  options.json = std::filesystem::temp_directory_path() / "flashsteps_test_measure.json";

  std::ostringstream text;
  std::streambuf* const screen = std::cout.rdbuf(text.rdbuf());
  run::finish(report, options);
  std::cout.rdbuf(screen);
  const auto written = nlohmann::json::parse(std::ifstream(*options.json));
  std::filesystem::remove(*options.json);

  CHECK(written["results"][0]["times_ms"] ==
        nlohmann::json{{"median", 0.025}, {"min", 0.025}, {"max", 0.05}, {"repetitions", 3}, {"launches", 20}});
  const std::string header = text.str().substr(text.str().find("variant"), 200);
  CHECK(header.find("GPU ms, median") != std::string::npos);
  CHECK((header.find("host s") != std::string::npos) == run::simulated);
  CHECK(text.str().find("0.0250") != std::string::npos);
  CHECK((text.str().find("7.125") != std::string::npos) == run::simulated);
}
